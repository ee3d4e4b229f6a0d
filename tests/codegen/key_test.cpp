// Owns the tests of kernel keys: their one spelling, read back and told apart.
#include "lathe/codegen/kernel_key.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_set>

#include "tests/codegen/drawn_keys.h"
#include "tests/codegen/kernel_cases.h"
#include "verification/random.h"

namespace lathe {
namespace {

void expect_round_trip(const KernelKey& key) {
  const Result<KernelKey> read = parse_key(key.text());
  ASSERT_TRUE(read) << key.text() << ": " << read.error().text();
  EXPECT_TRUE(*read == key) << key.text() << " reads as " << read->text();
  EXPECT_EQ(hash_value(*read), hash_value(key));
}

KernelKey random_key(verification::Random& random) {
  KernelKey key;
  key.type = static_cast<KernelType>(random.below(static_cast<int>(kernel_table().size())));
  key.format = static_cast<Format>(random.below(static_cast<int>(formats().size())));
  for (const KeyField& field : key_fields()) {
    if (random.below(3) == 0) continue;
    if (field.integer) key.*field.integer = random.below(random.below(2) ? 10 : 1 << 30);
    if (field.real) key.*field.real = std::ldexp(random.uniform(0.5f, 1), random.below(100) - 50);
    if (field.flag) key.*field.flag = random.below(2);
    testing::draw_name(key, field, random);
  }
  return key;
}

TEST(KernelKey, SpellingIsAsDocumented) {
  KernelKey key;
  key.format = Format::q4_k;
  key.k = 4096;
  key.n = 14336;
  EXPECT_EQ(key.text(), "gemv.q4_k.k4096.n14336.w4");
  EXPECT_EQ(key.symbol(), "gemv_q4_k_k4096_n14336_w4");
}

TEST(KernelKey, RandomKeysReadBack) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  for (int i = 0; i < 5000 && !HasFailure(); ++i) expect_round_trip(random_key(random));
}

TEST(KernelKey, EveryTestedKernelReadsBack) {
  for (const testing::Family& family : testing::families())
    for (const testing::KernelCase& c : testing::kernel_cases(family)) expect_round_trip(c.key);
}

TEST(KernelKey, EachFieldChangesTextSymbolAndHash) {
  const KernelKey plain;
  for (const KeyField& field : key_fields()) {
    KernelKey key;
    testing::set_another(key, field);
    EXPECT_FALSE(key == plain) << field.name;
    EXPECT_NE(key.text(), plain.text()) << field.name;
    EXPECT_NE(hash_value(key), hash_value(plain)) << field.name;
    expect_round_trip(key);
  }
}

TEST(KernelKey, FloatsReadBackExactly) {
  std::set<std::string> texts, symbols;
  const float values[] = {1e-5f,
                          1e-6f,
                          1.4e-5f,
                          1.4e-6f,
                          14e-5f,
                          0.1f,
                          0.125f,
                          1.0f / 3,
                          1e10f,
                          100,
                          0.08838834764f,
                          16777216.0f,
                          std::numeric_limits<float>::min(),
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::denorm_min(),
                          -2.5f,
                          std::nextafter(1e-5f, 1.0f)};
  for (float value : values) {
    KernelKey key;
    key.type = KernelType::rms_norm;
    key.epsilon = value;
    expect_round_trip(key);
    texts.insert(key.text());
    symbols.insert(key.symbol());
  }
  EXPECT_EQ(texts.size(), std::size(values));
  EXPECT_EQ(symbols.size(), std::size(values));
}

TEST(KernelKey, SymbolIsAPtxIdentifier) {
  verification::Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::string symbol = random_key(random).symbol();
    EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(symbol[0]))) << symbol;
    for (char c : symbol)
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) || c == '_') << symbol;
  }
}

TEST(KernelKey, DistinctKeysHaveDistinctNames) {
  std::vector<KernelKey> keys;
  for (const testing::Family& family : testing::families())
    for (const testing::KernelCase& c : testing::kernel_cases(family)) keys.push_back(c.key);
  verification::Random random(2);
  for (int i = 0; i < 5000; ++i) keys.push_back(random_key(random));
  const std::set<KernelKey> distinct(keys.begin(), keys.end());
  std::set<std::string> texts, symbols;
  std::set<std::size_t> hashes;
  for (const KernelKey& key : distinct) {
    texts.insert(key.text());
    symbols.insert(key.symbol());
    hashes.insert(hash_value(key));
  }
  EXPECT_EQ(texts.size(), distinct.size());
  EXPECT_EQ(symbols.size(), distinct.size());
  EXPECT_EQ(hashes.size(), distinct.size());
  const std::unordered_set<KernelKey> hashed(keys.begin(), keys.end());
  EXPECT_EQ(hashed.size(), distinct.size());
}

TEST(KernelKey, ErrorsNameThePart) {
  for (const char* text :
       {"gemv.q4_k.k4096.zz7", "gemv.q4_k.k", "gemv.q4_k.k12x", "gemv.q4_k.bias1", "gemv.q4_k.",
        "gemv.q4_k..k4", "gemv.q4_k.eps1e", "gemv.q4_k.k99999999999"}) {
    const Result<KernelKey> key = parse_key(text);
    ASSERT_FALSE(key) << text;
    EXPECT_EQ(key.error().code, Code::invalid_argument) << text;
    EXPECT_NE(key.error().message.find(text), std::string::npos) << key.error().message;
  }
  EXPECT_FALSE(parse_key(""));
  EXPECT_FALSE(parse_key("gem.q4_k"));
  EXPECT_FALSE(parse_key("gemv"));
  const Result<KernelKey> format = parse_key("gemv.q9_9.k32");
  ASSERT_FALSE(format);
  EXPECT_NE(format.error().message.find("q9_9"), std::string::npos);
}

TEST(KernelKey, FieldsAreSetByName) {
  KernelKey key;
  for (const auto& [name, value] : {std::pair{"k", "4096"},
                                    {"warps", "8"},
                                    {"epsilon", "1e-5"},
                                    {"bias", "1"},
                                    {"pairing", "halves"},
                                    {"activation", "gelu_tanh"},
                                    {"operation", "multiply"},
                                    {"layout", "tiles"}})
    EXPECT_TRUE(set_field(key, name, value)) << name;
  EXPECT_EQ(key.k, 4096);
  EXPECT_EQ(key.warps, 8);
  EXPECT_EQ(key.epsilon, 1e-5f);
  EXPECT_TRUE(key.bias);
  EXPECT_EQ(key.pairing, Pairing::halves);
  EXPECT_EQ(key.activation, Activation::gelu_tanh);
  EXPECT_EQ(key.operation, Operation::multiply);
  EXPECT_EQ(key.layout, Layout::tiles);
  ASSERT_TRUE(set_field(key, "bias", "0"));
  EXPECT_FALSE(key.bias);
  const Result<void> value = set_field(key, "warps", "many");
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("warps"), std::string::npos);
  const Result<void> field = set_field(key, "threads", "4");
  ASSERT_FALSE(field);
  EXPECT_NE(field.error().message.find("epsilon"), std::string::npos);
  EXPECT_FALSE(set_field(key, "bias", "yes"));
}

}  // namespace
}  // namespace lathe
