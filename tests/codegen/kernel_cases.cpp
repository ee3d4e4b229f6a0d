// Owns the shapes: for each kernel type, what models use and what is awkward.
#include "tests/codegen/kernel_cases.h"

#include <algorithm>
#include <climits>
#include <map>
#include <string_view>

#include "lathe/codegen/tile.h"
#include "tests/codegen/case_lists.h"

namespace lathe::testing {
namespace {

std::vector<int> row_lengths(Format format) {
  if (row(format).block == 256) return {256, 512, 768, 1536, 2304, 4096, 8448, 11008, 14336, 18944};
  if (row(format).block == 32)
    return {32, 64, 256, 288, 576, 1536, 2880, 4096, 8192, 8448, 11008, 14336, 18944};
  return {1,    7,    8,    33,   100,  257,  288,   576,   1000,
          1536, 2880, 4096, 8449, 8448, 8196, 11008, 14336, 18944};
}

void gemv_cases(const Family& family, Cases& out) {
  constexpr int kFew[] = {1, 2, 3, 4, 5, 9, 17, 33};
  int i = 0;
  const auto add = [&](int k, int n, int warps, int rows) {
    KernelCase c{base(family)};
    c.key.k = k;
    c.key.n = n;
    c.key.warps = warps;
    c.key.rows = rows;
    c.key.bias = i % 4 == 1 || i % 4 == 2;
    c.key.residual = i % 4 >= 2;
    c.key.scaled = i % 5 == 3;
    if (i % 7 == 5 && family.format != Format::f64) c.key.format_b = Format::f16;
    if (i % 7 == 3 || i % 7 == 6) {
      KernelKey rounded = c.key;
      rounded.format_b = i % 7 == 3 ? Format::q8_1 : Format::q8_k;
      if (check_key(rounded)) c.key = rounded;
    }
    if (c.key.residual && i % 3 == 0) c.alias = 2 + (c.key.bias ? 1 : 0) + (c.key.scaled ? 1 : 0);
    out.push_back(c);
    ++i;
  };
  const std::vector<int> lengths = row_lengths(family.format);
  for (int k : lengths)
    for (int repeat = 0; repeat < 3; ++repeat)
      add(k, std::min(turn(kFew, i), k > 8000 ? 5 : 33), turn(kWarps, i), 1 + i * 3 % 8);
  const int small = row(family.format).block == 1 ? 257 : 256;
  for (int warps : kWarps)
    for (int rows = 1; rows <= 8; ++rows) add(small, 17, warps, rows);
  add(lengths.size() > 10 ? 288 : 256, 1000, 4, 1);
  add(small, 1000, 8, 4);
}

void retile_cases(const Family& family, Cases& out) {
  constexpr int kRows[] = {1, 16, 17, 5, 32, 8, 40};
  int i = 0;
  for (int k : row_lengths(family.format)) {
    for (int repeat = 0; repeat < (k > 3000 ? 1 : 3); ++repeat) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.n = turn(kRows, i);
      c.key.warps = turn(kWarps, i++);
      out.push_back(c);
    }
  }
}

void embed_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int k : row_lengths(family.format)) {
    for (int n : {1, 5, 1000}) {
      if (n == 1000 && k > 600) continue;
      for (std::int32_t token : {0, n - 1, n / 2, -1, n, INT_MIN, INT_MAX}) {
        KernelCase c{base(family)};
        c.key.k = k;
        c.key.n = n;
        c.key.warps = turn(kWarps, i);
        c.key.scale = turn({1.0f, 0.125f, 25.298221f}, i++);
        c.token = token;
        out.push_back(c);
        if (i % 2 == 0 || !tile_shape(family.format, n, k)) continue;
        c.key.layout = Layout::tiles;
        out.push_back(c);
        if (k > 600) continue;
        c.key.tokens = turn({2, 3, 17}, i);
        out.push_back(c);
      }
    }
  }
}

void rms_norm_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int k : {1, 2, 7, 33, 64, 100, 128, 257, 288, 576, 896, 1024, 1536, 2880, 4096, 8192}) {
    for (int warps : {1, 2, 3, 4, 8, 16, 32}) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.n = k > 1000 ? 1 + i % 3 : turn({1, 2, 9, 32}, i);
      c.key.warps = warps;
      c.key.epsilon = turn({1e-5f, 1e-6f, 0.0f}, i);
      c.key.residual = i % 2 == 1;
      if (i % 5 == 1 && c.key.residual) c.alias = 2;
      if (i % 5 == 2) c.alias = 0;
      out.push_back(c);
      ++i;
    }
  }
}

void rope_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int position : {0, 1, 31, 4095, 32767, 131071}) {
    for (int head_dim : {2, 64, 80, 96, 128, 256}) {
      for (int part : {1, 2, head_dim}) {  // all of a head, half of it, one pair
        for (Pairing pairing : {Pairing::adjacent, Pairing::halves}) {
          KernelCase c{base(family)};
          c.key.heads = turn({1, 2, 3, 9, 32}, i);
          c.key.head_dim = head_dim;
          c.key.rotary = std::max(2, head_dim / part / 2 * 2);
          c.key.pairing = pairing;
          c.key.warps = turn(kWarps, i++);
          c.position = position;
          out.push_back(c);
        }
      }
    }
  }
}

void kv_append_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int position : {0, 1, 31, 4095, 32767, 131071}) {
    for (int head_dim : {1, 2, 48, 64, 80, 96, 112, 128, 192, 256}) {
      if (position > 1000 && head_dim > 2 && head_dim != 80) continue;
      KernelCase c{base(family)};
      c.key.kv_heads = position > 1000 ? 1 : turn({1, 2, 3, 8}, i);
      c.key.head_dim = head_dim;
      c.key.warps = turn(kWarps, i);
      c.position = position;
      c.capacity = position + 1 + i % 2;
      if (i % 2) c.values = Values::large;
      out.push_back(c);
      ++i;
    }
  }
  if (family.format == Format::f32) atoms_append_cases(family, out);
}

void attention_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int head_dim, int group, int length, int window) {
    out.push_back(attention_case(family, i, head_dim, group, length, window));
    ++i;
  };
  constexpr int kLengths[] = {1, 33, 70, 2, 128, 31, 64, 200, 127, 300, 65};
  constexpr int kWindows[] = {0, 0, 1, 32, 0, 33, 100};
  for (int head_dim : {2, 32, 48, 64, 80, 96, 112, 128, 192, 256, 18})
    for (int group : {1, 2, 3, 4, 7, 8, 9, 16})
      add(head_dim, group, turn(kLengths, i), turn(kWindows, i));
  for (int length = 1; length <= 70; ++length) add(64, 1 + length % 3, length, 0);
  for (int window : {1, 2, 31, 32, 33, 64, 100, 4096}) add(64, 2, 150, window);
  for (int length : {127, 128, 1000, 5000}) add(64, 3, length, 0);
  add(128, 4, 1000, 512);
  add(256, 8, 1000, 0);
  if (family.format == Format::f32) atoms_attention_cases(family, out);
}

void attention_merge_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int splits : {1, 2, 3, 7, 16, 64, 1024}) {
    for (int head_dim : {1, 2, 64, 80, 128, 256}) {
      KernelCase c{base(family)};
      c.key.heads = splits > 100 ? 2 : turn({1, 3, 8, 32}, i);
      c.key.head_dim = head_dim;
      c.key.splits = splits;
      c.key.warps = turn(kWarps, i++);
      out.push_back(c);
    }
  }
}

void argmax_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int n : {1, 2, 3, 31, 32, 33, 1000, 4097, 49152, 262145}) {
    for (Values values :
         {Values::random, Values::ties, Values::nan, Values::negative_infinity, Values::all_nan}) {
      KernelCase c{base(family)};
      c.key.n = n;
      c.key.splits = std::min(n, turn({1, 2, 7, 16, 64, 256, 1024}, i));
      c.key.warps = turn({1, 2, 4, 8, 16, 32}, i++);
      // A warp takes its time in the emulation, with values or without.
      while (c.key.splits * c.key.warps > 2048) c.key.warps /= 2;
      c.values = values;
      out.push_back(c);
      c.key.masked = true;
      out.push_back(c);
    }
  }
}

void argmax_merge_cases(const Family& family, Cases& out) {
  for (int splits : {1, 2, 7, 16, 31, 32, 33, 64, 1000, 1024}) {
    for (Values values :
         {Values::random, Values::ties, Values::nan, Values::negative_infinity, Values::all_nan}) {
      KernelCase c{base(family)};
      c.key.splits = splits;
      c.key.warps = 1;
      c.values = values;
      out.push_back(c);
    }
  }
}

using AddCases = void (*)(const Family&, Cases&);

// In the order of KernelType.
constexpr AddCases kAddCases[] = {
    retile_cases,      embed_cases,        rms_norm_cases,      gemv_cases,
    rope_cases,        kv_append_cases,    attention_cases,     attention_merge_cases,
    glu_cases,         argmax_cases,       argmax_merge_cases,  elementwise_cases,
    layer_norm_cases,  softmax_cases,      dequantize_cases,    quantize_cases,
    matvec_cases,      attend_cases,       top_k_cases,         sample_cases,
    norm_tokens_cases, matmul_cases,       append_tokens_cases, attend_tokens_cases,
    attend_rows_cases, gemm_operand_cases, gemm_cases,
};

// Without those in pages and those that begin early, which most of the time goes into.
Cases plain_cases(const Family& family) {
  Cases out;
  kAddCases[static_cast<std::size_t>(family.type)](family, out);
  return out;
}

}  // namespace

KernelCase attention_case(const Family& family, int i, int head_dim, int group, int length,
                          int window) {
  KernelCase c{base(family)};
  c.key.kv_heads = length > 500 ? 1 : 1 + i % 3;
  c.key.heads = c.key.kv_heads * group;
  c.key.head_dim = head_dim;
  c.key.window = window;
  c.key.splits = turn({1, 2, 7, 16}, i / 2);
  c.key.warps = turn(kWarps, i);
  c.key.scale = 1.0f / static_cast<float>(1 + head_dim / 16);
  c.position = length - 1;
  c.capacity = length + i % 4;
  if (i % 5 == 4) c.values = Values::large;
  return c;
}

std::string Family::name() const {
  return std::string(row(type).name) + "_" + row(format).name;
}

std::vector<KernelCase> kernel_cases(const Family& family) {
  std::vector<KernelCase> out = plain_cases(family);
  // All again with a KV cache in pages, and some that begin early.
  if (row(family.type).uses("paged"))
    for (std::size_t i = 0, in_a_row = out.size(); i < in_a_row; ++i)
      if (out[i].key.atoms == 0) out.push_back(in_pages(out[i], i));
  if (!row(family.type).uses("early")) return out;
  const bool few_ways = family.type != KernelType::matmul;
  for (std::size_t i = 0, late = out.size(); i < late; i += few_ways ? 5 : 1) {
    KernelCase early = out[i];
    early.key.early = true;
    if (early.key.blocks > 0 && !few_ways) early.key.stages = turn({4, 1, 2, 3}, int(i));
    if (check_key(early.key)) out.push_back(early);
  }
  return out;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> out;
    for (const KernelRow& kernel : kernel_table()) {
      for (const FormatRow& format : formats()) {
        const Family family{kernel.type, format.format};
        // Every test's process asks before it begins: cases are made where nothing else tells.
        if (!kernel.covers(format.format)) continue;
        if (kernel.formats != std::string_view(kAnyFormat) ||
            check_key(plain_cases(family).front().key))
          out.push_back(family);
      }
    }
    return out;
  }();
  return all;
}

std::vector<KernelKey> representative_keys(const Family& family) {
  // Two shapes where loops or registers differ much, among them ones that no vector load fits.
  static const std::map<KernelType, std::vector<const char*>> shapes = {
      {KernelType::retile, {"k4096.n4096", "k768.n20"}},
      {KernelType::embed, {"k4096.n128256", "k4096.n128256.tiles"}},
      {KernelType::rms_norm, {"k4096.n1.w8.eps1e-5.res", "k7.n1.w3.eps1e-6"}},
      {KernelType::gemv,
       {"k4096.n4096.res", "k14336.n4096.w8.r4.bias", "k4096.n4096.b_f16.scaled",
        "k4096.n4096.w8.r2.b_q8_1", "k4096.n4096.w8.r2.b_q8_k"}},
      {KernelType::rope, {"h32.d128.rot128.halves", "h9.d80.rot32"}},
      {KernelType::kv_append, {"kvh8.d128", "kvh8.d128.paged", "kvh8.d128.at1024.t8.w16"}},
      {KernelType::attention,
       {"h32.kvh8.d128.s16.scale88388346e-9", "h8.kvh1.d256.win512.s16",
        "h32.kvh8.d128.s16.scale88388346e-9.paged",
        "h32.kvh8.d128.at1024.t8.s16.scale88388346e-9"}},
      {KernelType::attention_merge, {"h32.d128.s16"}},
      {KernelType::glu, {"n14336", "n14336.gelu_tanh"}},
      {KernelType::argmax, {"n128256.s64.w8", "n128256.s64.w8.masked"}},
      {KernelType::argmax_merge, {"s64.w1"}},
      {KernelType::elementwise, {"n14336.activate.gelu_erf", "n4099.add", "n4096.k512.multiply"}},
      {KernelType::layer_norm, {"k4096.n1.w8.eps1e-5.bias", "k7.n1.w3.eps1e-6"}},
      {KernelType::softmax, {"k4096.n32.w8.scale125e-3", "k7.n1.w1"}},
      {KernelType::dequantize, {"k4096.n4096", "k4096.n4096.b_f16.tiles"}},
      {KernelType::quantize, {"k4096.n1"}},
      {KernelType::matvec,
       {"k4096.n4096.w16.bl132.st3.res", "k4096.n14336.nb14336.b_q4_0.w8.bl132.st2.gated.norm",
        "k768.n96.nb32.nc40.b_q4_0.c_q8_0.w16.bl3.st2.joined.norm.bias",
        "k4096.n4096.w8.bl132.st3.paired.res",
        "k4096.n14336.nb14336.b_FORMAT.w8.bl132.st2.early.gated.norm"}},
      {KernelType::attend,
       {"h32.kvh8.d128.rot128.w8.s16.scale88388346e-9", "h28.kvh4.d128.rot128.w16.s33.halves",
        "h4.kvh1.d256.rot256.win512.w16.s16.eps1e-6.qknorm.halves",
        "h32.kvh8.d128.rot128.w8.s16.matrix.scale88388346e-9",
        "h28.kvh4.d128.rot128.win512.w8.s33.matrix.eps1e-6.qknorm.halves",
        "h9.kvh3.d64.rot64.w8.s44.matrix", "h32.kvh8.d128.rot128.w8.s16.early.scale88388346e-9"}},
      {KernelType::top_k,
       {"n128256.s125.w16", "n32000.s2.w4", "n128256.m32.s16.w16.batched",
        "n128256.s125.w16.masked"}},
      {KernelType::sample, {"s125.w16", "s125.w16.early", "s33.w1", "m32.s16.w16.batched"}},
      {KernelType::norm_tokens,
       {"k4096.m512.w8.eps1e-5", "k96.m3.w1.eps1e-6.joined", "k4096.m8.w32.early.eps1e-5.batched"}},
      {KernelType::matmul,
       {"k4096.n4096.m512.w8.grouped.res", "k4096.n14336.nb14336.b_FORMAT.m512.w8.grouped.gated",
        "k4096.n4096.m8.w9.bl128.st3.s4.early.res", "k8192.n8192.m32.w17.bl128.st2.s4.early.res",
        "k4096.n14336.nb14336.b_FORMAT.m16.w15.bl128.st2.s2.paired.early.gated",
        "k4096.n14336.nb14336.b_FORMAT.m32.w15.bl128.st2.s2.paired.early.gated",
        "k4096.n14336.nb14336.b_FORMAT.m32.w9.bl264.early.gated", "k4096.n4096.m512.w8.res",
        "k768.n96.nb32.nc40.b_q4_0.c_q8_0.m17.w8.grouped.bias"}},
      {KernelType::append_tokens,
       {"m512.h32.kvh8.d128.rot128.w8.scale88388346e-9",
        "m17.h4.kvh1.d256.rot256.w3.eps1e-6.qknorm.halves",
        "m32.h32.kvh8.d128.rot128.w8.scale88388346e-9.batched",
        "m32.h32.kvh8.d128.rot128.w8.scale88388346e-9.batched.paged"}},
      {KernelType::attend_tokens,
       {"m512.h4.kvh1.d256.win512.w8", "m512.h32.kvh8.d128.w8", "m512.h32.kvh8.d128.w8.paged"}},
      {KernelType::attend_rows,
       {"m32.h32.kvh8.d128.w4.bl396.s33", "m32.h28.kvh4.d128.win512.w8.s33",
        "m32.h28.kvh4.d128.win512.w8.s33.paged", "m32.h32.kvh8.d128.w6.bl264.s16.matrix",
        "m8.h32.kvh8.d128.w6.bl264.s16.matrix.early",
        "m32.h32.kvh8.d128.w6.bl264.s16.matrix.paged"}},
      {KernelType::gemm_operand, {"k4096.n4096.w8", "k4096.n4096.b_bf16.w8", "k77.n5.w1"}},
      {KernelType::gemm,
       {"k4096.n4096.m4096.w9.bl132.grouped", "k4096.n4096.m4096.w8",
        "k77.n301.m33.w9.grouped.bias.activate.gelu_erf"}},
  };
  std::vector<const char*> wanted = shapes.at(family.type);
  // Around a format's decoding all is the same whatever the format: the others show it.
  const bool late = family.format > Format::q6_k, half = row(family.format).bytes == 2;
  const bool whole = family.type == KernelType::embed || family.type == KernelType::gemm;
  if ((late && !whole) || (half && family.type == KernelType::matvec)) wanted.resize(1);
  // Long to compile, and little different from format to format: all of them for one.
  const bool of_cache =
      family.type == KernelType::attend_tokens || family.type == KernelType::attend_rows;
  if ((family.type == KernelType::matmul && family.format != Format::q4_k) ||
      (of_cache && family.format != Format::f16))
    wanted.resize(1);
  std::vector<KernelKey> out;
  for (const char* shape : wanted) {
    std::string text =
        std::string(row(family.type).name) + "." + row(family.format).name + "." + shape;
    if (const std::size_t at = text.find("FORMAT"); at != std::string::npos)
      text.replace(at, 6, row(family.format).name);
    KernelKey key = *parse_key(text);
    while (key.stages > 1 && !check_key(key)) --key.stages;  // larger tiles, fewer under way
    const bool rounded = key.format_b == Format::q8_1 || key.format_b == Format::q8_k;
    const bool of_all = key.layout == Layout::raw && !rounded && !key.matrix && key.atoms == 0 &&
                        key.format != Format::f64;
    if (of_all || check_key(key)) out.push_back(key);
  }
  return out;
}

}  // namespace lathe::testing
