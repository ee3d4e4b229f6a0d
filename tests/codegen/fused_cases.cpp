// Owns the shapes of the fused kernels and of those that choose a token.
#include <algorithm>

#include "tests/codegen/case_lists.h"

namespace lathe::testing {

KernelCase product_case(const Family& family, int i, int k, int n, int n_b, int n_c) {
  KernelCase c{base(family)};
  c.key.k = k;
  c.key.n = n;
  c.key.n_b = n_b;
  c.key.n_c = n_c;
  c.key.format_b = n_b > 0 ? family.format : Format::f32;
  c.key.format_c = n_c > 0 ? turn({family.format, Format::q6_k}, i) : Format::f32;
  if (n_c > 0 && k % 256 != 0) c.key.format_c = family.format;
  return c;
}

void matvec_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int k, int n, int n_b, int n_c) -> KernelKey& {
    KernelCase c = product_case(family, i, k, n, n_b, n_c);
    c.key.blocks = turn({1, 3, 2}, i);
    c.key.warps = turn({4, 16, 8}, i);
    c.key.stages = turn({1, 2, 3}, i);
    c.key.epsilon = 1e-5f;
    c.key.norm = i % 2 == 0;
    ++i;
    out.push_back(c);
    return out.back().key;
  };
  const bool k_blocks = row(family.format).block == 256;
  for (int k : k_blocks ? std::vector{256, 768, 2048, 4096, 4352}
                        : std::vector{32, 96, 128, 320, 576, 2048, 3072}) {
    add(k, 5, 0, 0).residual = true;
    add(k, 130, 0, 0);
    add(k, 48, 16, 33).bias = i % 3 == 0;
    KernelKey& gated = add(k, 100, 100, 0);
    gated.gated = gated.norm = true;
    gated.activation = turn({Activation::silu, Activation::gelu_tanh}, i);
    KernelKey& joined = add(k, 20, 0, 0);
    joined.joined = joined.norm = true;
  }
  // More row tiles a block than fit the partial sums: in batches, gates apart from ups.
  add(k_blocks ? 2048 : 576, 700, 0, 0).blocks = 2;
  KernelKey& many = add(k_blocks ? 4096 : 3072, 16 * 11, 16 * 11, 0);
  many.gated = many.norm = true;
  many.warps = 16;
  many.blocks = 1;
  // What rounds activations to integers meets values of any size.
  KernelCase uneven{out[out.size() - 2]};
  for (const Values values : {Values::outliers, Values::faint}) {
    uneven.values = values;
    out.push_back(uneven);
  }
  for (std::size_t j = 0, alone = out.size(); j < alone; ++j) {
    out.push_back(out[j]);
    out.back().key.paired = true;
  }
  for (KernelCase& c : out)  // larger tiles, fewer under way
    while (c.key.stages > 1 && !check_key(c.key)) --c.key.stages;
  // Two whole tiles of 16 bits for each of sixteen warps are more than a block has.
  if (row(family.format).block == 1)
    std::erase_if(out, [](const KernelCase& c) {
      return c.key.paired && c.key.warps == 16 && !check_key(c.key);
    });
}

void attend_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int head_dim, int group, int length, int window) {
    KernelCase c{base(family)};
    if (family.format == Format::q8_0 && head_dim % 32 != 0) return;
    c.key.kv_heads = length > 500 ? 1 + i % 2 : 1 + i % 3;
    c.key.heads = c.key.kv_heads * group;
    c.key.head_dim = head_dim;
    c.key.rotary = i % 6 == 3 ? head_dim / 4 * 2 : head_dim;
    c.key.window = window;
    c.key.splits = turn({16, 1, 2, 7, 33}, i);
    c.key.warps = group > 8   ? turn({4, 16, 8}, i)
                  : group > 4 ? turn({2, 4, 8, 16}, i)
                              : turn(kWarps, i);
    c.key.scale = 1.0f / static_cast<float>(1 + head_dim / 16);
    c.key.pairing = i % 2 ? Pairing::halves : Pairing::adjacent;
    c.key.qk_norm = i % 3 == 1;
    c.key.epsilon = c.key.qk_norm ? 1e-6f : 0;
    c.position = length - 1;
    c.capacity = length + i % 4;
    if (i % 5 == 4) c.values = Values::large;
    out.push_back(c);
    ++i;
  };
  constexpr int kLengths[] = {1, 2, 32, 33, 256, 257, 100, 300, 5, 520};
  constexpr int kWindows[] = {0, 0, 1, 32, 0, 33, 130};
  for (int head_dim : {32, 40, 64, 80, 96, 104, 128, 160, 192, 256})
    for (int group : {1, 2, 3, 4, 5, 7, 8, 9, 16})
      add(head_dim, group, turn(kLengths, i), turn(kWindows, i));
  for (int length = 1; length <= 40; ++length) add(64, 1 + length % 3, length, 0);
  for (int window : {1, 2, 31, 32, 33, 64, 100, 4096}) add(128, 2, 150, window);
  for (int length : {700, 1000, 2100, 4096}) add(64, 4, length, 0);
  for (int length : {600, 1030, 4096}) add(128, 4, length, length / 3 + 500);
  add(256, 4, 900, 512);
  add(256, 8, 700, 0);
  add(128, 7, 1500, 0);
  for (std::size_t j = 0, alone = out.size(); j < alone; ++j) {
    KernelCase by_matrix = out[j];
    by_matrix.key.matrix = true;
    if (check_key(by_matrix.key)) out.push_back(by_matrix);
  }
}

namespace {

// The i-th of settings that use every rule alone and together, greedy ones among them.
Sampling sampling_rules(int i) {
  constexpr Sampling kRules[] = {
      {},
      {.temperature = 1},
      {.repeat_penalty = 1.3f, .repeat_last = 256},
      {.temperature = 0.7f, .top_k = 5, .seed = 1},
      {.temperature = 1.5f, .top_p = 0.9f, .seed = 1ull << 40},
      {.temperature = 1, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f},
      {.temperature = 100, .repeat_penalty = 10, .repeat_last = 1, .seed = ~0ull},
      {.temperature = 1e-3f, .min_p = 1, .repeat_penalty = 0.5f, .repeat_last = 256},
      {.temperature = 0.9f, .top_k = 1},
      {.temperature = 1, .top_p = 1e-6f, .repeat_penalty = 2, .repeat_last = 0},
      {.temperature = 2, .top_k = 63, .top_p = 0.999f, .seed = 77},
  };
  return turn(kRules, i);
}

// Greedy and drawn tokens in one batch, one or two of its rows unused.
void in_batches(const Cases& single, int step, Cases& out) {
  for (std::size_t i = 0; i + 1 < single.size(); i += static_cast<std::size_t>(step)) {
    KernelCase c = single[i];
    c.key.batched = true;
    c.key.tokens = turn({3, 1, 5}, static_cast<int>(i) / step);
    c.count = std::max(1, c.key.tokens - static_cast<int>(i) % 3);
    for (int row = 0; row < c.count; ++row)
      c.batch.push_back(
          {single[i].position + 7 * row, 1000 * row, sampling_rules(static_cast<int>(i) + row)});
    c.position = 0;
    out.push_back(c);
  }
}

constexpr Values kLogits[] = {Values::random, Values::ties,    Values::nan,
                              Values::large,  Values::all_nan, Values::negative_infinity};

}  // namespace

void top_k_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int n, int splits, int warps) {
    KernelCase c{base(family)};
    c.key.n = n;
    c.key.splits = std::min(n, splits);
    c.key.warps = warps;
    c.values = turn(kLogits, i);
    c.sampling = sampling_rules(i / 2);
    c.position = turn({0, 1, 63, 300, 100000, 255}, i / 3);
    c.token = turn({0, n - 1, n / 2, -1}, i);
    c.key.masked = i % 3 == 1;
    out.push_back(c);
    ++i;
  };
  for (int n : {1, 2, 31, 63, 64, 65, 127, 1000, 4097})
    for (int warps : {1, 2, 3, 5, 8, 16}) add(n, turn({1, 2, 7, 64}, i), warps);
  // A split of more than 4096 has fewer flags of recent tokens than logits.
  for (int repeat = 0; repeat < 12; ++repeat) add(9000, 1 + repeat % 3, turn({8, 4, 7}, repeat));
  add(32000, 32, 16);
  add(32000, 1024, 2);
  in_batches(Cases(out), 4, out);
}

void sample_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int splits : {1, 2, 3, 17, 33, 132, 1024}) {
    for (int warps : {1, 2, 3, 8, 16}) {
      for (int repeat = 0; repeat < (splits > 100 ? 3 : 12); ++repeat) {
        KernelCase c{base(family)};
        c.key.splits = splits;
        c.key.warps = warps;
        c.values = turn(kLogits, i);
        c.sampling = sampling_rules(i / 5);
        c.position = 3 * i++;
        out.push_back(c);
      }
    }
  }
  in_batches(Cases(out), 7, out);
}

}  // namespace lathe::testing
