// Owns what tells one model file from another.
#include "runtime/model_fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <span>

namespace lathe {
namespace {

constexpr std::size_t kSample = 256;

}  // namespace

std::uint64_t model_fingerprint(const GgufFile& file, const Plan& plan) {
  std::uint64_t digest = 0;
  const auto mix = [&](const void* data, std::size_t bytes) {
    digest = XXH3_64bits_withSeed(data, bytes, digest);
  };
  for (const GgufTensor& tensor : file.tensors()) {
    mix(tensor.name.data(), tensor.name.size());
    mix(&tensor.ggml_type, sizeof tensor.ggml_type);
    mix(tensor.dims.data(), tensor.dims.size() * sizeof tensor.dims[0]);
    const std::span<const std::byte> data = file.data(tensor);
    const std::size_t sample = std::min(kSample, data.size());
    for (const std::size_t at : {std::size_t{0}, (data.size() - sample) / 2, data.size() - sample})
      mix(data.data() + at, sample);
  }
  for (const Table& table : plan.tables)
    mix(table.values.data(), table.values.size() * sizeof table.values[0]);
  const std::int32_t layers[] = {plan.options.part.first_layer, plan.spec.layers};
  mix(layers, sizeof layers);
  return digest;
}

}  // namespace lathe
