// Owns the shapes of dense products and of their operands.
#include "tests/codegen/case_lists.h"

namespace lathe::testing {

void gemm_operand_cases(const Family& family, Cases& out) {
  int i = 0;
  for (int k : {1, 7, 64, 65, 72, 100, 256, 1000}) {
    for (Format numbers : {Format::f32, Format::f16, Format::bf16}) {
      KernelCase c{base(family)};
      c.key.k = k;
      c.key.n = turn({1, 5, 128, 130}, i);
      c.key.format_b = numbers;
      c.key.warps = turn(kWarps, i);
      c.values =
          turn({Values::random, Values::nan, Values::large, Values::random, Values::faint}, i++);
      out.push_back(c);
    }
  }
}

void gemm_cases(const Family& family, Cases& out) {
  int i = 0;
  const auto add = [&](int m, int n, int k, int blocks) {
    for (const bool grouped : {false, true}) {
      if (grouped && family.format == Format::f64) continue;
      KernelCase c{base(family)};
      c.key.tokens = m;
      c.key.n = n;
      c.key.k = k;
      c.key.blocks = blocks;
      c.key.grouped = grouped;
      c.key.warps = grouped ? 9 : 8;
      c.key.bias = i % 3 == 1;
      if (i % 4 == 2) {
        c.key.operation = Operation::activate;
        c.key.activation =
            turn({Activation::relu, Activation::gelu_tanh, Activation::silu, Activation::gelu_erf},
                 i / 4);
        if (family.format == Format::f64) c.key.activation = Activation::relu;
      }
      out.push_back(c);
    }
    ++i;
  };
  for (int k : {1, 17, 65, 333}) {
    add(1, 1, k, 0);
    add(5, 33, k, 0);
    add(16, 130, k, 1);
    add(70, 7, k, 0);
  }
  // More tiles than blocks, whose rings go on from one tile to the next; bands that are not full.
  add(300, 270, 96, 2);
  add(129, 257, 384, 3);
  add(1100, 65, 33, 5);
  add(128, 256, 640, 0);
}

}  // namespace lathe::testing
