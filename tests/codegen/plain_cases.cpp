// Owns the shapes of the kernels with one operation on vectors, element by element or row by row.
#include <algorithm>

#include "lathe/codegen/tile.h"
#include "tests/codegen/case_lists.h"

namespace lathe::testing {
namespace {

constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh,
                                       Activation::gelu_erf, Activation::relu};

}  // namespace

void glu_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int n : {1, 31, 32, 33, 1000, 8960, 18944}) {
    for (Activation activation : kActivations) {
      for (Values values : {Values::random, Values::large}) {
        KernelCase c{base(family)};
        c.key.n = n;
        c.key.activation = activation;
        c.key.warps = turn(kWarps, i);
        c.values = values;
        c.alias = i % 3 - 1;
        out.push_back(c);
        ++i;
      }
    }
  }
}

void elementwise_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](Operation operation, int n, int k, Values values) {
    KernelCase c{base(family)};
    c.key.operation = operation;
    if (operation == Operation::activate) c.key.activation = turn(kActivations, i / 2);
    c.key.bias = operation == Operation::activate && (k > 0 || i % 2 == 1);
    const bool has_b =
        c.key.bias || operation == Operation::add || operation == Operation::multiply;
    c.key.k = has_b ? k : 0;
    c.key.n = n;
    c.key.scale = turn({1.0f, 0.125f, -25.298221f}, i);
    c.key.warps = turn(kWarps, i);
    c.values = values;
    c.alias = i % 3 - 1;
    if (c.alias == 1 && (!has_b || (k > 0 && k < n))) c.alias = 0;
    out.push_back(c);
    ++i;
  };
  for (Operation operation :
       {Operation::copy, Operation::add, Operation::multiply, Operation::activate}) {
    for (int n : {1, 2, 3, 4, 5, 31, 128, 1000, 8963})
      for (int repeat = 0; repeat < 3; ++repeat) add(operation, n, 0, Values::random);
    for (int k : {1, 3, 4, 7, 20, 32}) add(operation, k * turn({1, 5, 33}, i), k, Values::random);
    add(operation, 1000, 0, operation == Operation::multiply ? Values::outliers : Values::large);
    add(operation, 1003, 0, Values::faint);
  }
}

void layer_norm_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int k : {2, 7, 33, 64, 100, 257, 896, 1536, 4096}) {
    for (int warps : {1, 2, 3, 8, 32}) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.n = k > 1000 ? 1 + i % 3 : turn({1, 2, 9, 32}, i);
      c.key.warps = warps;
      c.key.epsilon = turn({1e-5f, 1e-6f}, i);
      c.key.bias = i % 2 == 1;
      if (i % 4 == 1) c.values = Values::large;
      if (i % 5 == 2) c.alias = 0;
      out.push_back(c);
      ++i;
    }
  }
}

void softmax_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int k : {1, 2, 7, 33, 64, 100, 257, 1024, 5000}) {
    for (int warps : {1, 2, 3, 8, 32}) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.n = k > 1000 ? 1 + i % 3 : turn({1, 2, 9, 32}, i);
      c.key.warps = warps;
      c.key.scale = turn({1.0f, 0.125f, 11.0f}, i);
      if (k > 30) c.values = turn({Values::random, Values::masked, Values::outliers}, i / 2);
      if (i % 4 == 2) c.alias = 0;
      out.push_back(c);
      ++i;
    }
  }
}

void dequantize_cases(const Family& family, Cases& out) {
  const int block = row(family.format).block;
  int i = 0;
  for (int k : {1, 7, 33, 32, 64, 96, 256, 288, 768, 1280, 4096}) {
    if (k % block != 0) continue;
    for (int repeat = 0; repeat < 4; ++repeat) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.n = k > 1000 ? turn({1, 3}, i) : turn({1, 5, 16, 33}, i);
      c.key.warps = turn(kWarps, i++);
      if (i % 3 == 0) c.key.format_b = Format::f16;
      out.push_back(c);
      if (!tile_shape(family.format, c.key.n, k)) continue;
      c.key.layout = Layout::tiles;
      out.push_back(c);
    }
  }
}

void quantize_cases(const Family& family, Cases& out) {
  int i = 0;
  // A sum that is no number has no bits that all agree on.
  const bool has_half_sum = family.format == Format::q8_1 || family.format == Format::q8_1_tail;
  for (int blocks : {1, 2, 3, 8, 33}) {
    for (Values values : {Values::random, Values::large, Values::ties, Values::outliers,
                          Values::faint, Values::nan}) {
      if (values == Values::nan && has_half_sum) values = Values::random;
      KernelCase c{base(family)};
      c.key.k = row(family.format).block * blocks;
      c.key.n = turn({1, 3, 17}, i);
      c.key.warps = turn(kWarps, i++);
      c.values = values;
      out.push_back(c);
    }
  }
}

}  // namespace lathe::testing
