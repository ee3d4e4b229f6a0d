// Owns the shapes of the kernels that take the tokens of a chunk or of a batch: full ones and
// others, from one token on.
#include <algorithm>
#include <initializer_list>

#include "ptx_templates/ops/matmul_shapes.h"
#include "tests/codegen/case_lists.h"

namespace lathe::testing {

void norm_tokens_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int k : {4, 32, 64, 96, 100, 288, 576, 1024, 2880, 4096}) {
    for (int tokens : {1, 3, 17}) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.tokens = tokens;
      c.key.warps = turn({1, 2, 3, 8, 32}, i);
      c.key.epsilon = turn({1e-5f, 1e-6f}, i);
      c.key.joined = i % 3 != 0;
      c.key.batched = i % 4 < 2;
      c.count = std::max(1, tokens - i % 3);
      out.push_back(c);
      ++i;
    }
  }
}

void matmul_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int k, int n, int n_b, int n_c, int tokens) -> KernelKey& {
    KernelCase c = product_case(family, i, k, n, n_b, n_c);
    c.key.tokens = tokens;
    c.key.warps = 8;
    c.key.grouped = i % 2 == 1;
    c.count = std::max(1, tokens - turn({0, 1, 5}, i));
    c.position = 1000 * i;
    ++i;
    out.push_back(c);
    return out.back().key;
  };
  const bool k_blocks = row(family.format).block == 256;
  for (int k : k_blocks ? std::vector{256, 768} : std::vector{32, 96, 320}) {
    add(k, 5, 0, 0, 1).residual = true;
    add(k, 130, 0, 0, 17);
    add(k, 48, 16, 33, 70).bias = i % 2 == 0;
    for (int n : {100, 32}) {
      KernelKey& gated = add(k, n, n, 0, turn({17, 3}, i));
      gated.gated = true;
      gated.activation = turn({Activation::silu, Activation::gelu_tanh}, i / 2);
    }
  }
  add(k_blocks ? 256 : 64, 270, 0, 0, 140).residual = true;
  add(k_blocks ? 2048 : 1024, 17, 0, 0, 2);  // more stages than are under way at once

  // Few tokens: row blocks in one piece and in several, and more blocks than there are stages.
  const auto add_few = [&](int k, int n, int n_b, int n_c, int tokens, int blocks) -> KernelKey& {
    KernelKey& key = add(k, n, n_b, n_c, tokens);
    key.blocks = blocks;
    key.warps = 9;
    key.grouped = false;
    return key;
  };
  for (int k : k_blocks ? std::vector{256, 768} : std::vector{32, 320}) {
    add_few(k, 130, 16, 33, 8, 3).bias = i % 2 == 0;
    add_few(k, 130, 0, 0, turn({32, 9, 1}, i), 1).residual = true;
    add_few(k, 270, 0, 0, 20, 7);
    KernelKey& gated = add_few(k, 100, 100, 0, turn({3, 16, 30}, i), turn({2, 5, 11}, i));
    gated.gated = true;
    gated.activation = turn({Activation::silu, Activation::gelu_tanh}, i / 2);
  }
  add_few(k_blocks ? 2048 : 1024, 17, 140, 0, 5, 5);
  // Warps that share k: columns that do and do not come in fours.
  for (int k : k_blocks ? std::vector{256, 1536, 2048} : std::vector{32, 480, 1024}) {
    KernelKey& key = add_few(k, 50, i % 2 ? 33 : 0, 0, turn({8, 13, 30}, i), turn({2, 3, 5}, i));
    key.splits = 4;
    key.residual = i % 2 == 0;
    key.stages = turn({1, 2, 3, 8}, i);
    while (key.stages > 1 && !check_key(key)) --key.stages;
  }
  // Warps that have one row tile or two, a gate and its up; all columns or some of them; blocks
  // that have one row block each, and that share them.
  int v = i;
  const auto team = [&](KernelKey& key, int row_warps, bool paired) {
    key.paired = paired;
    key.splits = turn({2, 1, 4, 1, 4, 2, 1}, v++);
    key.warps = 1 + row_warps * key.splits;
    key.stages = 2;
    while (key.splits > 1 && !check_key(key)) key.splits /= 2, key.warps = key.warps / 2 + 1;
    if (!check_key(key)) key.stages = 1;
  };
  for (int k : k_blocks ? std::vector{256, 768, 1280} : std::vector{32, 320, 1024}) {
    for (const int spare : {0, 1, -1}) {  // blocks that row blocks do not have, or lack
      // Row tiles: 8 of gates, with zeros up to whole operands, 9 of rows, 7 + 2 + 4 of three.
      int row_warps = turn({3, 4, 2, 1, 8}, v);
      const auto row_blocks = [&](std::initializer_list<int> tiles) {
        int all = spare;
        for (const int n : tiles) all += dev::ceil_div(n, row_warps);
        return std::max(1, all);
      };
      KernelKey& gated = add_few(k, 100, 100, 0, turn({30, 8, 13, 4}, v), row_blocks({8}));
      gated.gated = true;
      gated.activation = turn({Activation::silu, Activation::gelu_tanh}, v / 2);
      team(gated, row_warps, true);
      row_warps = turn({4, 2, 1, 3}, v);
      KernelKey& rows = add_few(k, 130, 0, 0, turn({7, 32, 16, 8}, v), row_blocks({5}));
      rows.residual = v % 2 == 0;
      team(rows, row_warps, true);
      row_warps = turn({3, 2, 4, 1}, v);
      team(add_few(k, 100, 20, 50, turn({12, 8, 25, 16}, v), row_blocks({7, 2, 4})), row_warps,
           false);
    }
  }
  // A ring of two stages, and of more than there are columns.
  add_few(k_blocks ? 2048 : 1024, 40, 16, 0, 7, 2).stages = 2;
  add_few(k_blocks ? 768 : 320, 33, 0, 0, 5, 1).stages = 6;
  add_few(k_blocks ? 2048 : 1056, 17, 0, 0, 12, 40);
}

// Sequences of so many positions in the caches, the first behind the others, and with five rows
// between them that nobody has; there a length of 0 puts the next position of the sequence before.
void place_sequences(KernelCase& c, std::initializer_list<int> lengths) {
  int room = 3;
  for (int length : lengths) room += length > 0 ? length + 5 : 0;
  c.capacity = room;
  for (int length : lengths) {
    if (length > 0) {
      room -= length + 5;
      c.batch.push_back({length - 1, room});
    } else {
      BatchRow next = c.batch.back();
      ++next.position;
      c.batch.push_back(next);
    }
  }
  c.count = static_cast<int>(c.batch.size());
}

void append_tokens_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int head_dim : {32, 48, 64, 80, 128, 256}) {
    if (family.format == Format::q8_0 && head_dim % 32 != 0) continue;
    for (int tokens : {1, 3, 17}) {
      for (int position : {0, 5, 100}) {
        KernelCase c{base(family)};
        c.key.kv_heads = turn({1, 2, 3}, i);
        c.key.heads = c.key.kv_heads * turn({1, 4, 3, 7}, i);
        c.key.head_dim = head_dim;
        c.key.rotary = i % 4 == 3 ? head_dim / 4 * 2 : head_dim;
        c.key.tokens = tokens;
        c.key.warps = turn({1, 3, 8, 16}, i);
        c.key.scale = 1.0f / static_cast<float>(1 + head_dim / 16);
        c.key.pairing = i % 2 ? Pairing::halves : Pairing::adjacent;
        c.key.qk_norm = i % 3 == 1;
        c.key.epsilon = c.key.qk_norm ? 1e-6f : 0;
        c.count = std::max(1, tokens - i % 2);
        c.position = position;
        c.first_row = turn({0, 3, 41}, i / 2);
        c.capacity = c.first_row + position + c.count + i % 3;
        out.push_back(c);
        ++i;
      }
    }
  }
  const auto batch = [&](int turns, std::initializer_list<int> lengths) {
    KernelCase c = out[static_cast<std::size_t>(turns)];
    c.key.batched = true;
    place_sequences(c, lengths);
    c.key.tokens = c.count + turns % 3;
    out.push_back(c);
  };
  batch(1, {1});
  batch(6, {5, 0, 0, 100, 2, 0});
  batch(12, {1, 1, 1});
  batch(15, {16, 17, 0, 32, 48, 0});  // what pages begin and end with
  batch(20, {300, 7, 64, 0, 0, 0, 0, 1, 33});
}

void attend_tokens_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int head_dim, int tokens, int position, int window) {
    if (family.format == Format::q8_0 && head_dim % 32 != 0) return;
    KernelCase c{base(family)};
    c.key.kv_heads = turn({1, 2}, i);
    c.key.heads = c.key.kv_heads * turn({1, 3, 2}, i);
    c.key.head_dim = head_dim;
    c.key.window = window;
    c.key.tokens = tokens;
    c.key.warps = 8;
    c.count = std::max(1, tokens - i % 2);
    c.position = position;
    c.first_row = turn({0, 3, 41}, i / 2);
    c.capacity = c.first_row + position + c.count + i % 3;
    if (i % 5 == 4) c.values = Values::large;
    out.push_back(c);
    ++i;
  };
  for (int head_dim : {32, 48, 64, 80, 96, 128, 160, 256})
    for (int repeat = 0; repeat < 2; ++repeat)
      add(head_dim, turn({1, 17, 3, 66}, i), turn({0, 61, 130}, i), turn({0, 7, 64}, i / 2));
  add(64, 130, 0, 0);
  add(64, 130, 60, 50);
  add(128, 65, 300, 100);
  add(32, 64, 64, 0);
  add(64, 17, 15, 16);
  add(128, 3, 95, 33);
  add(32, 29, 164, 0);  // to position 192, which is all that the last 64 have
}

void attend_rows_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int head_dim, int group, int window, std::initializer_list<int> lengths) {
    if (family.format == Format::q8_0 && head_dim % 32 != 0) return;
    KernelCase c{base(family)};
    c.key.kv_heads = turn({1, 2, 3}, i);
    c.key.heads = c.key.kv_heads * group;
    c.key.head_dim = head_dim;
    c.key.window = window;
    c.key.splits = turn({16, 1, 3, 7}, i);
    c.key.warps = group > 4 ? turn({4, 8, 2}, i) : turn({1, 2, 4, 8, 3}, i);
    c.key.blocks = turn({5, 0, 1, 64}, i / 2);
    place_sequences(c, lengths);
    c.key.tokens = std::min(c.count + turn({0, 1, 3}, i), 32);
    if (i % 5 == 4) c.values = Values::large;
    out.push_back(c);
    ++i;
    if (family.format != Format::f16 || group > 8 || head_dim > 128) return;
    c.key.matrix = true;
    c.key.warps = turn({8, 1, 3, 6}, i);
    out.push_back(c);
  };
  for (int head_dim : {32, 48, 64, 80, 96, 128, 160, 256})
    for (int group : {1, 3, 4, 7})
      add(head_dim, group, turn({0, 0, 7, 64}, i / 3), {turn({1, 33, 70, 5}, i), 20, 0, 0, 2});
  // Splits in use, of some tokens or of all.
  add(128, 4, 0, {300, 0, 0, 0, 40});
  add(128, 4, 0, {1100, 5, 600});
  add(256, 3, 300, {700, 64, 65, 66, 0});
  add(64, 8, 0, {1030, 1, 513});
  add(128, 16, 0, {520});
  add(64, 2, 16, {16, 17, 0, 48, 49, 31});  // what pages begin and end with
  add(32, 1, 5, {16, 33, 130});
  // As many tokens as there may be.
  add(32, 2, 0, {9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 8, 7, 6,
                 5, 4, 3, 2, 1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 40});
}

}  // namespace lathe::testing
