// Holds the choice of atoms to words that can be said beforehand, and the walk through a vector's
// words to seeing what is wrong with them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "codegen/kernels/kv_atoms.h"
#include "tests/codegen/kernel_runs.h"
#include "verification/atom_choices.h"

namespace lathe::testing {
namespace {

using Words = std::vector<std::uint32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t word(std::uint32_t id, float coefficient) {
  return atom_word(id, f32_to_f16(coefficient));
}

KernelCase case_of(int head_dim, int atoms, int terms, int warps) {
  KernelCase c;
  c.key.type = KernelType::kv_append;
  c.key.kv_heads = 1;
  c.key.head_dim = head_dim;
  c.key.atoms = atoms;
  c.key.terms = terms;
  c.key.warps = warps;
  return c;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

// The words of a key with these numbers, by the device code and by the oracle; those of a value of
// zeros beside it are the first atom's.
Words words_of(const std::vector<float>& key, const std::vector<float>& atoms, int terms) {
  const auto d = static_cast<int>(key.size());
  Words out;
  for (int warps : {1, 3, 16}) {
    const KernelCase c = case_of(d, static_cast<int>(atoms.size() / key.size()), terms, warps);
    EXPECT_TRUE(check_key(c.key));
    const Bytes empty = bytes_of(Words(static_cast<std::size_t>(terms), 0xffffffffu));
    const std::vector<Bytes> before = {bytes_of(key),
                                       bytes_of(std::vector<float>(key.size())),
                                       bytes_of(std::vector<int>{0}),
                                       bytes_of(atoms),
                                       bytes_of(atoms),
                                       empty,
                                       empty};
    const auto after = emulated_run(c, before, Placement::end, 1);
    EXPECT_TRUE(after) << after.error().text();
    if (!after) return {};
    Words found(static_cast<std::size_t>(terms)), values = found, oracle = found;
    std::memcpy(found.data(), (*after)[5].data(), empty.size());
    std::memcpy(values.data(), (*after)[6].data(), empty.size());
    EXPECT_EQ(values, Words(values.size(), word(0, 0)));
    encode_vector(c.key, key.data(), atoms.data(), oracle.data());
    EXPECT_EQ(found, oracle) << warps;
    if (!out.empty()) {
      EXPECT_EQ(found, out) << warps;
    }
    out = found;
  }
  return out;
}

std::vector<float> axes(int head_dim) {
  std::vector<float> out(static_cast<std::size_t>(head_dim * head_dim));
  for (int i = 0; i < head_dim; ++i) out[static_cast<std::size_t>(i * head_dim + i)] = 1;
  return out;
}

TEST(KvAtoms, OfTheAxesTheGreatestAreChosenFirst) {
  EXPECT_EQ(words_of({1, -5, 3, 0.5f}, axes(4), 3), (Words{word(1, -5), word(2, 3), word(0, 1)}));
  EXPECT_EQ(words_of({0, 0, 0, 2, 0, 0}, axes(6), 2), (Words{word(3, 2), word(0, 0)}));
}

TEST(KvAtoms, TiesGoToTheLowerNumber) {
  EXPECT_EQ(words_of({2, -2, 2, 2}, axes(4), 4),
            (Words{word(0, 2), word(1, -2), word(2, 2), word(3, 2)}));
  std::vector<float> atoms = axes(2);
  for (const float value : {-1.0f, 0.0f, 1.0f, 0.0f}) atoms.push_back(value);  // twice, once turned
  EXPECT_EQ(words_of({3, 1}, atoms, 2), (Words{word(0, 3), word(1, 1)}));
}

TEST(KvAtoms, WhatACoefficientRoundsAwayIsLeftForTheNext) {
  const float value = 1 + 0x1p-12f;
  EXPECT_EQ(words_of({value, 0}, axes(2), 2), (Words{word(0, 1), word(0, 0x1p-12f)}));
}

TEST(KvAtoms, NanNeverWinsAndIsNotLost) {
  std::vector<float> atoms = axes(4);
  atoms[4 * 2 + 2] = kNan;  // the third atom
  EXPECT_EQ(words_of({1, 2, 9, 3}, atoms, 2), (Words{word(3, 3), word(1, 2)}));
  const std::uint32_t none = atom_word(0, 0x7fff);
  EXPECT_EQ(words_of({1, kNan, 2, 3}, axes(4), 2), (Words{none, none}));
  // Both products are infinite, and what is left is no number.
  const std::uint32_t infinite = atom_word(0, 0x7c00);
  EXPECT_EQ(words_of({kInfinity, 1}, {1, 1, 1, 0}, 2), (Words{infinite, none}));
}

TEST(KvAtoms, WhatIsTooGreatForAWordIsSharedOut) {
  const std::uint32_t most = atom_word(0, 0x7bff);
  EXPECT_EQ(words_of({1e6f, 0}, axes(2), 1), (Words{most}));
  EXPECT_EQ(words_of({131009, 0}, axes(2), 3), (Words{most, most, word(0, 1)}));
  EXPECT_EQ(words_of({0, -1e5f}, axes(2), 2), (Words{atom_word(1, 0xfbff), word(1, 65504 - 1e5f)}));
}

TEST(KvAtoms, TheLastOfTheMostIsFound) {
  std::vector<float> atoms(2 * static_cast<std::size_t>(kMostAtoms));
  for (std::size_t i = 0; i < atoms.size(); i += 2) atoms[i] = 1;
  atoms.end()[-2] = 0;
  atoms.end()[-1] = 1;
  EXPECT_EQ(words_of({1, 4}, atoms, 2), (Words{word(65535, 4), word(0, 1)}));
}

// Each of these must be seen in what was right before.
TEST(AtomChoices, WrongWordsAreTold) {
  KernelCase c = case_of(16, 40, 3, 4);
  c.key.kv_heads = 2;
  c.position = 1;
  c.capacity = 3;
  const std::vector<Bytes> arguments = make_arguments(c, 7);
  std::vector<Bytes> expected = arguments;
  run_oracle(c, expected);
  EXPECT_EQ(verification::atoms_problem(c, expected, expected), "");
  const auto problem_with = [&](std::size_t cache, std::size_t at, auto change) {
    std::vector<Bytes> actual = expected;
    std::uint32_t one;
    std::memcpy(&one, actual[cache].data() + 4 * at, 4);
    one = change(one);
    std::memcpy(actual[cache].data() + 4 * at, &one, 4);
    return verification::atoms_problem(c, expected, actual);
  };
  const auto says = [](const std::string& problem, const char* words) {
    EXPECT_NE(problem.find(words), std::string::npos) << problem;
  };
  const auto another = [](std::uint32_t w) { return w ^ 1u << 16; };
  says(problem_with(5, 6, another), "key of head 0, word 0: atom ");
  says(problem_with(6, 9, another), "value of head 1, word 0: atom ");
  says(problem_with(5, 8, another), "key of head 0, word 2: atom ");
  says(problem_with(5, 6, [](std::uint32_t w) { return w + 2; }), "the coefficient is ");
  says(problem_with(5, 6, [](std::uint32_t w) { return w ^ 0x8000; }), "the coefficient is ");
  says(problem_with(5, 11, [](std::uint32_t w) { return w | 0xffffu << 16; }), "there is no atom");
  says(problem_with(6, 5, [](std::uint32_t w) { return w + 1; }), "of a cache was written");
  says(problem_with(6, 12, [](std::uint32_t w) { return w + 1; }), "of a cache was written");
}

TEST(AtomChoices, TheLaterOfTwoEqualAtomsIsTold) {
  KernelCase c = case_of(4, 5, 1, 1);
  std::vector<float> atoms = axes(4);
  for (const float value : {0.0f, -1.0f, 0.0f, 0.0f}) atoms.push_back(value);
  const Bytes x = bytes_of(std::vector<float>{1, 3, 2, 0});
  std::vector<Bytes> expected = {x,
                                 x,
                                 bytes_of(std::vector<int>{0}),
                                 bytes_of(atoms),
                                 bytes_of(atoms),
                                 bytes_of(Words{word(1, 3)}),
                                 bytes_of(Words{word(1, 3)})};
  EXPECT_EQ(verification::atoms_problem(c, expected, expected), "");
  std::vector<Bytes> actual = expected;
  actual[6] = bytes_of(Words{word(4, -3)});
  EXPECT_NE(verification::atoms_problem(c, expected, actual).find("atom 1 is as great as 4"),
            std::string::npos);
}

TEST(KvAtoms, KeysThatCannotBeAreRefused) {
  const auto refused = [](const char* text, const char* words) {
    const auto key = parse_key(text);
    ASSERT_TRUE(key) << text;
    const Result<void> valid = check_key(*key);
    ASSERT_FALSE(valid) << text;
    EXPECT_NE(valid.error().message.find(words), std::string::npos) << valid.error().message;
  };
  refused("kv_append.f32.kvh2.d64.at8", "terms is 0");
  refused("kv_append.f32.kvh2.d64.t8", "there are no atoms");
  refused("kv_append.f32.kvh2.d64.at65537.t8", "atoms is 65537");
  refused("kv_append.f32.kvh2.d64.at8.t65", "terms is 65");
  refused("kv_append.f32.kvh2.d65.at8.t8", "must be even");
  refused("kv_append.f32.kvh2.d258.at8.t8", "head_dim is 258");
  refused("kv_append.f16.kvh2.d64.at8.t8", "atoms are f32");
  refused("kv_append.f32.kvh2.d64.at8.t8.paged", "not in pages");
  refused("attention.f32.h2.kvh2.d64.at8.t0", "terms is 0");
  refused("attention.f16.h2.kvh2.d64.at8.t8", "atoms are f32");
  refused("attention.f32.h2.kvh2.d64.at8.t8.paged", "not in pages");
  refused("attend.f16.h2.kvh2.d64.rot64.at8.t8", "attend has no atoms");
}

}  // namespace
}  // namespace lathe::testing
