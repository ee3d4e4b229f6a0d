// Owns the contents of kernel arguments: random numbers of sensible size in every format, special
// values where a case asks for them, NaN wherever a kernel must not read or must write.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "lathe/codegen/gemm_operand.h"
#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/matmul_shapes.h"
#include "verification/atom_inputs.h"
#include "verification/kernel_case.h"
#include "verification/random.h"
#include "verification/settled_keys.h"

namespace lathe::verification {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
void store(Bytes& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

// A NaN as f32 and as f16, unlike the NaN that arithmetic gives.
void poison(std::span<std::byte> bytes) {
  constexpr std::byte kPattern[] = {std::byte{0xf5}, std::byte{0xff}};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = kPattern[i % 2];
}

float draw(Random& random, Values values) {
  switch (values) {
    case Values::random:
      return random.normal();
    case Values::large:
      return std::ldexp(random.normal(), random.below(200) - 100);
    case Values::ties:
      return static_cast<float>(random.below(3) - 2) * (random.below(2) ? 1.0f : -0.0f);
    case Values::nan: {
      const int kind = random.below(8);
      return kind == 0 ? kNan : kind == 1 ? -kInfinity : random.normal();
    }
    case Values::negative_infinity:
      return -kInfinity;
    case Values::all_nan:
      return random.below(2) ? kNan : -kNan;
    case Values::masked:
      return random.below(3) ? random.normal() : -kInfinity;
    case Values::outliers:
      return random.normal() * (random.below(64) == 0 ? 1000.0f : 1.0f);
    case Values::faint:
      return random.normal() * 1e-9f;
  }
  return 0;
}

void fill(Bytes& bytes, Random& random, Values values, float factor = 1) {
  for (std::size_t i = 0; i < bytes.size() / 4; ++i) store(bytes, i, factor * draw(random, values));
}

// Numbers, or every byte random, then the half-precision scales set to numbers of one magnitude.
void fill_blocks(Bytes& bytes, Random& random, Format format, Values kind) {
  const FormatRow& f = row(format);
  if (format == Format::f64) {  // with bits that f32 has not
    for (std::size_t i = 0; i < bytes.size() / 8; ++i)
      store(bytes, i, random.normal() * (1 + static_cast<double>(random.uniform(0, 0x1p-24f))));
    return;
  }
  if (f.block == 1) {
    const auto values = static_cast<std::int64_t>(bytes.size()) / f.bytes;
    std::vector<float> numbers(static_cast<std::size_t>(values));
    for (float& number : numbers) number = draw(random, kind);
    f.pack(numbers.data(), values, bytes.data());
    return;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.bits() >> 56);
  std::vector<std::size_t> halves = {0};
  if (format == Format::q6_k) halves = {208};
  if (format == Format::q2_k) halves = {80, 82};
  if (format == Format::q3_k) halves = {108};
  if (format == Format::mxfp4 || format == Format::q8_k || format == Format::ternary) halves = {};
  if (format == Format::q8_1_tail) halves = {32, 34};
  if (format == Format::q4_k_soa)
    halves = {128, 130, 132, 134, 136, 138, 140, 142, 144, 146, 148, 150, 152, 154, 156, 158};
  if (format == Format::q8_1) halves.push_back(2);
  if (format == Format::q4_1 || format == Format::q5_1 || format == Format::q4_k ||
      format == Format::q5_k)
    halves.push_back(2);
  const auto size = static_cast<std::size_t>(f.bytes);
  for (std::size_t block = 0; block < bytes.size() / size; ++block) {
    if (format == Format::mxfp4)  // an exponent
      bytes[block * size] = static_cast<std::byte>(120 + random.below(8));
    if (format == Format::q8_k) {
      const float d = random.uniform(-1, 1);
      std::memcpy(bytes.data() + block * size, &d, 4);
    }
    for (std::size_t half : halves) {
      const float magnitude = random.uniform(0.25f, 1) * (half == 2 && f.block == 32 ? 8.0f : 1.0f);
      const std::uint16_t bits = f32_to_f16(random.below(2) ? magnitude : -magnitude);
      std::memcpy(bytes.data() + block * size + half, &bits, 2);
    }
  }
}

// One position of a KV cache: in q8_0 all bytes come first, then the scales.
void pack_position(Format format, const std::vector<float>& numbers, std::byte* at) {
  const auto width = static_cast<std::int64_t>(numbers.size());
  if (format != Format::q8_0) return row(format).pack(numbers.data(), width, at);
  std::vector<std::byte> blocks(static_cast<std::size_t>(row_bytes(format, width)));
  row(format).pack(numbers.data(), width, blocks.data());
  for (std::int64_t b = 0; b < width / 32; ++b) {
    std::memcpy(at + width + 2 * b, blocks.data() + 34 * b, 2);
    std::memcpy(at + 32 * b, blocks.data() + 34 * b + 2, 32);
  }
}

// Positions that the kernel may read hold numbers; the others are left as NaN, that which the
// kernel appends among them.
void fill_cache(Bytes& bytes, Random& random, const KernelCase& c) {
  const auto width = static_cast<std::int64_t>(c.key.kv_heads) * c.key.head_dim;
  const auto first_seen = [&](int position) {
    return c.key.window > 0 ? std::max(0, position - c.key.window + 1) : 0;
  };
  const int last = c.key.type == KernelType::attend          ? c.position - 1
                   : c.key.type == KernelType::attend_tokens ? c.position + c.count - 1
                                                             : c.position;
  std::vector<float> numbers(static_cast<std::size_t>(width));
  if (c.key.atoms > 0) return fill_words(bytes, random, c, first_seen(c.position));
  const auto fill_positions = [&](int first, int past, int first_row) {
    for (int p = first; p < past; ++p) {
      for (float& number : numbers) number = random.normal();
      pack_position(c.key.format, numbers,
                    bytes.data() + c.place(first_row, p) * kv_position_bytes(c.key.format, width));
    }
  };
  for (const BatchRow& each : c.batch)
    fill_positions(first_seen(each.position), each.position + 1, each.first_row);
  if (c.batch.empty()) fill_positions(first_seen(c.position), last + 1, c.first_row);
}

// Frequencies of RoPE in revolutions per position, each as a high and a low float.
void fill_frequencies(Bytes& bytes, Random& random, int rotary) {
  const double base = random.below(2) ? 10000 : 500000;
  for (int pair = 0; pair < rotary / 2; ++pair) {
    const double frequency = std::pow(base, -2.0 * pair / rotary) / (2 * std::numbers::pi);
    const auto high = static_cast<float>(frequency);
    store(bytes, 2 * static_cast<std::size_t>(pair), high);
    store(bytes, 2 * static_cast<std::size_t>(pair) + 1, static_cast<float>(frequency - high));
  }
}

// What attention leaves: per head and split head_dim values, the maximum, the sum of weights; some
// splits empty, but never all of a head.
void fill_attention_partial(Bytes& bytes, Random& random, const KernelKey& key) {
  const auto stride = static_cast<std::size_t>(key.head_dim + 2);
  for (int head = 0; head < key.heads; ++head) {
    for (int split = 0; split < key.splits; ++split) {
      const auto at = static_cast<std::size_t>(head * key.splits + split) * stride;
      const bool empty = split > 0 && random.below(4) == 0;
      const float total = empty ? 0 : random.uniform(1, 40);
      for (std::size_t e = 0; e < stride - 2; ++e) store(bytes, at + e, total * random.normal());
      store(bytes, at + stride - 2, empty ? -3.0e38f : 4 * random.normal());
      store(bytes, at + stride - 1, total);
    }
  }
}

// About the score of a query of ones; with a scale of 0 all scores are 0.
float score_factor(const KernelKey& key) {
  return std::sqrt(static_cast<float>(key.head_dim)) * (key.scale == 0 ? 1 : key.scale);
}

// Projections and norm weights: scores of about 1, or 15.
void fill_attend(Bytes& bytes, Random& random, const KernelCase& c, std::string_view name) {
  const float scores = c.values == Values::large ? 15.0f : 1.0f;
  const float query = scores / score_factor(c.key);
  const int queries = c.key.heads * c.key.head_dim;
  for (int i = 0; i < static_cast<int>(bytes.size()) / 4; ++i) {
    float value = name == "qkv" ? random.normal() : random.uniform(0.5f, 1.5f);
    if (name == "q_norm" || (name == "qkv" && i < queries && !c.key.qk_norm)) value *= query;
    store(bytes, static_cast<std::size_t>(i), value);
  }
}

// A chunk's rows of f16: operands of matmul with zeros behind each row, or queries that give scores
// of about 1, or 15. Rows past the chunk's last are left as NaN.
void fill_halves(Bytes& bytes, Random& random, const KernelCase& c) {
  const bool queries =
      c.key.type == KernelType::attend_tokens || c.key.type == KernelType::attend_rows;
  const int k = queries ? c.key.heads * c.key.head_dim : c.key.k;
  const int width = queries ? k : dev::operand_width(k);
  const int few = c.key.blocks > 0 ? dev::few_tokens(c.key.tokens) : 0;
  // A gate times an up must stay far from the largest number of f16, which a rounding crosses:
  // gates have a variance of some 100^2 where weights of q6_k are 900, of 200^2 where q8_0's are 50.
  const bool wide = row(c.key.format).block == 256 || row(c.key.format_b).block == 256;
  const float operand = c.key.gated ? 1 / ((wide ? 128 : 4) * std::sqrt(float(k))) : 1.0f / 16;
  const float score = c.values == Values::large ? 15.0f : 1.0f;
  const float size = queries ? score / std::sqrt(float(c.key.head_dim)) : operand;
  for (int token = 0; token < c.count; ++token) {
    float sum = 0;  // of 16 operands
    for (int i = 0; i < width; ++i) {
      const std::int64_t at =
          queries ? std::int64_t{token} * width + i : dev::operand_place(token, i, width, few);
      const std::uint16_t half = f32_to_f16(i < k ? size * random.normal() : 0.0f);
      store(bytes, static_cast<std::size_t>(at), half);
      sum = (i % 16 > 0 ? sum : 0) + f16_to_f32(half);
      if (few > 0 && !queries && i % 16 == 15)
        store(bytes, static_cast<std::size_t>(dev::operand_mean_place(token, i, width, few)),
              f32_to_f16(sum / 16));
    }
  }
}

// What argmax leaves: a value and an index per split, rising; none where the value is -inf.
void fill_argmax_partial(Bytes& bytes, Random& random, const KernelCase& c) {
  std::int32_t index = 0;
  for (int split = 0; split < c.key.splits; ++split) {
    const float value = draw(random, c.values);
    const bool none = std::isnan(value);
    index += 1 + random.below(100);
    store(bytes, 2 * static_cast<std::size_t>(split), none ? -kInfinity : value);
    store(bytes, 2 * static_cast<std::size_t>(split) + 1, none ? 0x7fffffff : index);
  }
}

// The rules of each token of the case.
std::vector<Sampling> rules(const KernelCase& c) {
  std::vector<Sampling> out;
  for (const BatchRow& row : c.batch) out.push_back(row.sampling);
  if (!c.key.batched) out.push_back(c.sampling);
  return out;
}

// Recent tokens from a small range, so that some come twice and some are in each split; some are no
// tokens at all.
void fill_sampling(Bytes& bytes, Random& random, const KernelCase& c) {
  std::size_t index = 0;
  for (const Sampling& sampling : rules(c)) {
    SamplingState state = sampling_state(sampling);
    for (std::int32_t& id : state.recent) {
      const int range = std::min(std::max(c.key.n, 1), random.below(2) ? 1 << 30 : 100);
      id = random.below(20)  ? random.below(range)
           : random.below(2) ? -1
                             : std::numeric_limits<int>::max();
    }
    store(bytes, index++, state);
  }
}

void fill_rows(Bytes& bytes, const KernelCase& c) {
  std::size_t index = 0;
  for (const BatchRow& row : c.batch) {
    store(bytes, index++, row.position);
    store(bytes, index++, row.first_row);
  }
}

// What top_k leaves, of a few hundred logits per split.
void fill_top_k_partial(Bytes& bytes, Random& random, const KernelCase& c) {
  KernelKey key{.type = KernelType::top_k};
  key.splits = c.key.splits;
  key.n = key.splits * (1 + random.below(200));
  std::byte* lists = bytes.data();
  for (const Sampling& sampling : rules(c)) {
    std::vector<float> logits(static_cast<std::size_t>(key.n));
    for (float& logit : logits) logit = 4 * draw(random, c.values);
    SamplingState state = sampling_state(sampling);
    state.repeat_last = 0;
    std::int32_t nothing = 0;
    const std::vector<void*> arguments = {logits.data(), &nothing, &nothing, &state, lists};
    row(key.type).oracle(key, arguments, 0, 1);
    lists += key.splits * kMaxTopK * 8;
  }
}

// Sets with nothing in them, one id, half of all and nearly all, in turn.
void fill_token_sets(Bytes& bytes, Random& random, const KernelCase& c) {
  const std::size_t words = (static_cast<std::size_t>(c.key.n) + 31) / 32;
  for (std::size_t first = 0; first < bytes.size() / 4; first += words) {
    const int kind = random.below(4);
    for (std::size_t i = 0; i < words; ++i) {
      std::uint32_t word = static_cast<std::uint32_t>(random.below(1 << 16)) << 16 |
                           static_cast<std::uint32_t>(random.below(1 << 16));
      if (kind < 2) word = 0;
      if (kind == 3) word |= ~(1u << random.below(32));
      store(bytes, first + i, word);
    }
    if (kind != 1) continue;
    const auto only = static_cast<std::size_t>(random.below(c.key.n));
    store(bytes, first + only / 32, 1u << (only % 32));
  }
}

void fill_input(Bytes& bytes, Random& random, const KernelCase& c, const Param& param) {
  const std::string_view name = param.name;
  if (param.element == Element::blocks || param.element == Element::tiles)
    return fill_blocks(bytes, random, param.matrix.format, c.values);
  if (param.element == Element::kv) return fill_cache(bytes, random, c);
  if (name == "k_atoms" || name == "v_atoms") return fill_atoms(bytes, random, c);
  if (name == "position") return store(bytes, 0, c.position);
  if (name == "token") {
    for (int i = 0; i < c.key.tokens; ++i)
      store(bytes, static_cast<std::size_t>(i), i == 0 ? c.token : random.below(c.key.n + 2) - 1);
    return;
  }
  if (name == "allowed") return fill_token_sets(bytes, random, c);
  if (name == "counters") {
    for (std::size_t i = 0; i < bytes.size() / 4; ++i)
      store(bytes, i, random.below(100) * dev::kArrivals);
    return;
  }
  if (name == "chunk") {
    store(bytes, 0, c.count);
    if (c.key.batched) return;
    store(bytes, 1, c.position);
    return store(bytes, 2, c.first_row);
  }
  if (param.element == Element::f16) return fill_halves(bytes, random, c);
  if (name == "rows") return fill_rows(bytes, c);
  if (name == "pages") return std::memcpy(bytes.data(), c.pages.data(), bytes.size()), void();
  if (name == "sampling") return fill_sampling(bytes, random, c);
  if (c.key.type == KernelType::sample) return fill_top_k_partial(bytes, random, c);
  if (name == "frequencies") return fill_frequencies(bytes, random, c.key.rotary);
  if (c.key.type == KernelType::attention_merge)
    return fill_attention_partial(bytes, random, c.key);
  if (c.key.type == KernelType::argmax_merge) return fill_argmax_partial(bytes, random, c);
  if (c.key.type == KernelType::attention) {
    const float scores = c.values == Values::large ? 15.0f : 1.0f;
    return fill(bytes, random, Values::random, scores / score_factor(c.key));
  }
  if (c.key.type == KernelType::attend || c.key.type == KernelType::append_tokens)
    return fill_attend(bytes, random, c, name);
  if (c.key.type == KernelType::layer_norm && c.values == Values::large) {
    for (std::size_t i = 0; i < bytes.size() / 4; ++i) store(bytes, i, random.normal() + 1000);
    return;
  }
  fill(bytes, random, c.values);
}

}  // namespace

std::size_t argument_bytes(const KernelCase& kernel_case, const Param& param) {
  const std::int64_t times = param.per_position ? kernel_case.capacity
                             : param.per_page   ? std::ssize(kernel_case.pages)
                                                : 1;
  return static_cast<std::size_t>(param.oracle_bytes() * times);
}

std::vector<Bytes> make_arguments(const KernelCase& kernel_case, std::uint64_t seed) {
  Random random(seed);
  std::vector<Bytes> out;
  for (const Param& param : row(kernel_case.key.type).params(kernel_case.key)) {
    Bytes& bytes = out.emplace_back(argument_bytes(kernel_case, param));
    poison(bytes);
    if (param.access != Access::write) fill_input(bytes, random, kernel_case, param);
  }
  if (kernel_case.key.type == KernelType::attend) settle_keys(kernel_case, out);
  return out;
}

std::vector<Bytes> device_arguments(const KernelCase& kernel_case, std::vector<Bytes> arguments) {
  const std::vector<Param> params = row(kernel_case.key.type).params(kernel_case.key);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].element != Element::tiles || params[i].access != Access::read) continue;
    const Matrix& matrix = params[i].matrix;
    if (kernel_case.key.type == KernelType::gemm) {
      Bytes operand(static_cast<std::size_t>(params[i].bytes));
      make_gemm_operand(kernel_case.key.format, matrix.format, matrix.n, matrix.k,
                        arguments[i].data(), operand.data());
      arguments[i] = std::move(operand);
      continue;
    }
    const Result<TileShape> shape = tile_shape(matrix.format, matrix.n, matrix.k);
    Bytes tiles(static_cast<std::size_t>(params[i].bytes));
    if (shape) blocks_to_tiles(*shape, arguments[i].data(), tiles.data());
    arguments[i] = std::move(tiles);
  }
  return arguments;
}

}  // namespace lathe::verification
