// Owns the shapes of kernels whose keys and values are sums of atoms.
#include <iterator>

#include "tests/codegen/case_lists.h"

namespace lathe::testing {
namespace {

// Atoms and terms that are one, odd, a warp's, a table's most.
constexpr int kAtoms[] = {1, 2, 31, 64, 257, 1024, 33};
constexpr int kTerms[] = {1, 8, 3, 2, 5, 9};

}  // namespace

void atoms_append_cases(const Family& family, Cases& out) {
  constexpr Values kValues[] = {Values::random,           Values::ties,    Values::nan,
                                Values::random,           Values::all_nan, Values::outliers,
                                Values::negative_infinity};
  int i = 0;
  const auto add = [&](int head_dim, int atoms, int terms, int position) {
    KernelCase c{base(family)};
    c.key.kv_heads = turn({1, 2, 3, 5}, i);
    c.key.head_dim = head_dim;
    c.key.atoms = atoms;
    c.key.terms = terms;
    c.key.warps = turn(kWarps, i);
    c.position = position;
    c.capacity = position + 1 + i % 2;
    c.values = turn(kValues, i / static_cast<int>(std::size(kAtoms)));
    out.push_back(c);
    ++i;
  };
  for (int head_dim : {2, 18, 32, 48, 64, 80, 96, 112, 128, 192, 256, 250})
    for (int repeat = 0; repeat < 4; ++repeat)
      add(head_dim, turn(kAtoms, i), turn(kTerms, i), turn({0, 1, 31, 200}, i));
  add(64, 128, kMostTerms, 5);
  out.back().values = Values::random;
  add(4, kMostAtoms, 2, 4095);
  out.back().values = Values::random;
}

void atoms_attention_cases(const Family& family, Cases& out) {
  constexpr int kLengths[] = {1, 33, 70, 2, 128, 31, 64, 200, 300, 65};
  int i = 0;
  const auto add = [&](int head_dim, int group, int atoms, int terms, int window) {
    KernelCase c = attention_case(family, i, head_dim, group, turn(kLengths, i), window);
    c.key.atoms = atoms;
    c.key.terms = terms;
    out.push_back(c);
    ++i;
  };
  constexpr int kWindows[] = {0, 0, 1, 32, 0, 33, 100};
  for (int head_dim : {2, 32, 64, 80, 96, 128, 256, 18, 250})
    for (int group : {1, 2, 4, 7, 9})
      add(head_dim, group, turn(kAtoms, i), turn(kTerms, i),
          turn(kWindows, i / static_cast<int>(std::size(kAtoms))));
  add(64, 3, 128, kMostTerms, 0);
  add(2, 1, kMostAtoms, 2, 0);
}

}  // namespace lathe::testing
