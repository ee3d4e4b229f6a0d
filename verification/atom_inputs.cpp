// Owns the drawing of atoms, and of words that name them.
#include "verification/atom_inputs.h"

#include <cmath>
#include <cstring>

namespace lathe::verification {

void fill_words(Bytes& bytes, Random& random, const KernelCase& c, int first) {
  const std::int64_t words = std::int64_t{c.key.kv_heads} * c.key.terms;
  // Vectors as long as those of other caches.
  const float size =
      std::sqrt(static_cast<float>(c.key.head_dim) / static_cast<float>(c.key.terms));
  for (std::int64_t i = first * words; i < (c.position + 1) * words; ++i) {
    const int end = random.below(2) ? 0 : c.key.atoms - 1;
    const auto id =
        static_cast<std::uint32_t>(random.below(8) == 0 ? end : random.below(c.key.atoms));
    const std::uint32_t word = id << 16 | f32_to_f16(size * random.normal());
    std::memcpy(bytes.data() + 4 * i, &word, 4);
  }
}

void fill_atoms(Bytes& bytes, Random& random, const KernelCase& c) {
  const float size = 1 / std::sqrt(static_cast<float>(c.key.head_dim));
  for (std::size_t at = 0; at < bytes.size(); at += 4) {
    const float value =
        c.values == Values::ties ? static_cast<float>(random.below(3) - 1) : size * random.normal();
    std::memcpy(bytes.data() + at, &value, 4);
  }
  const std::size_t stride = static_cast<std::size_t>(c.key.head_dim) * 4;
  for (int id = 1; id < c.key.atoms; id += 3) {
    const auto from = static_cast<std::size_t>(random.below(id)) * stride;
    const auto to = static_cast<std::size_t>(id) * stride;
    for (std::size_t i = 0; i < stride; ++i)
      bytes[to + i] = bytes[from + i] ^ std::byte(i % 4 == 3 && id % 2 ? 0x80 : 0);
  }
}

}  // namespace lathe::verification
