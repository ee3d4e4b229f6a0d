// Owns what sessions of parts of a model are held to: one after the other they are the whole model.
#include "tests/runtime/model_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lathe/codegen/format.h"
#include "tests/runtime/relative_error.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;

constexpr std::int32_t kTokens[] = {3, 50, 7, 7, 21};

// Of the norm against double precision: some roundings of a float.
constexpr double kNormBound = 1e-6;
// Of the logits: the design's for kernels that keep f32 activations. Emulated ones are within 3e-5.
constexpr double kHeadBound = 2e-3;

constexpr ModelPart kFromHidden = {.input = PartInput::hidden};

// From hidden to hidden.
ModelPart block_of(int layer, PartBlocks blocks, bool residual = true) {
  return {.first_layer = layer,
          .layers = 1,
          .input = PartInput::hidden,
          .output = PartOutput::hidden,
          .blocks = blocks,
          .residual = residual};
}

Floats hidden(Session& session, HiddenState which = HiddenState::stream) {
  Floats state(std::size_t(session.plan().spec.hidden), NAN);
  const auto read = session.read_hidden(which, state);
  EXPECT_TRUE(read) << read.error().text();
  return state;
}

Floats logits(Session& session) {
  const auto values = session.logits();
  EXPECT_TRUE(values) << values.error().text();
  return values ? Floats(values->begin(), values->end()) : Floats();
}

Floats after(Session& session, std::span<const float> state) {
  const auto stepped = session.step_hidden(state);
  EXPECT_TRUE(stepped) << stepped.error().text();
  return hidden(session);
}

// The token's row, which the model's first layer reads.
Floats embedding(const GgufFile& file, const ModelSpec& spec, std::int32_t token) {
  const GgufTensor& table = *file.tensor("token_embd.weight");
  const FormatRow& format = row(format_by_ggml_type(table.ggml_type).value());
  Floats state(std::size_t(spec.hidden));
  const std::int64_t bytes = row_bytes(format.format, spec.hidden);
  format.unpack(file.data(table).data() + token * bytes, spec.hidden, state.data());
  for (float& value : state) value *= spec.embedding_scale;
  return state;
}

// Values of a tensor of the file, as floats.
Floats values_of(const GgufFile& file, const GgufTensor& tensor) {
  Floats values(std::size_t(tensor.k() * tensor.rows()));
  row(format_by_ggml_type(tensor.ggml_type).value())
      .unpack(file.data(tensor).data(), std::int64_t(values.size()), values.data());
  return values;
}

// x / sqrt(mean(x^2) + epsilon) * weight in double precision.
Floats normed_by(std::span<const float> x, std::span<const float> weight, double epsilon) {
  double squares = 0;
  for (const float value : x) squares += double(value) * double(value);
  const double factor = 1 / std::sqrt(squares / double(x.size()) + epsilon);
  Floats out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    out[i] = float(double(x[i]) * factor * double(weight[i]));
  return out;
}

// Computed from the file alone: neither the key of a kernel nor its oracle has a part in it.
void expect_normed(const GgufFile& file, const Floats& stream, const Floats& normed) {
  const Floats weight = values_of(file, *file.tensor("output_norm.weight"));
  const double epsilon =
      file.real(file.string("general.architecture").value() + ".attention.layer_norm_rms_epsilon")
          .value();
  const Floats expected = normed_by(stream, weight, epsilon);
  EXPECT_LE(relative_error(normed, expected), kNormBound);
  // Of such a model that a norm without its weight, or with another epsilon, is far from that.
  EXPECT_GT(relative_error(normed_by(stream, Floats(stream.size(), 1), epsilon), expected),
            1000 * kNormBound);
  for (const double other : {0.0, 1e-6, 1e-5, 2 * epsilon})
    EXPECT_GT(relative_error(normed_by(stream, weight, other), expected), 1000 * kNormBound);
}

// The head's weights times the normed state, in double precision.
void expect_logits_of(const GgufFile& file, const Floats& normed, const Floats& logits) {
  const GgufTensor* head = file.tensor("output.weight");
  const Floats weights = values_of(file, head ? *head : *file.tensor("token_embd.weight"));
  ASSERT_EQ(weights.size(), normed.size() * logits.size());
  Floats expected;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    double sum = 0;
    for (std::size_t i = 0; i < normed.size(); ++i)
      sum += double(weights[token * normed.size() + i]) * double(normed[i]);
    expected.push_back(float(sum));
  }
  EXPECT_LE(relative_error(logits, expected), kHeadBound);
}

}  // namespace

void expect_parts_make_the_whole(const OpenPart& open, const GgufFile& file, double bound) {
  const auto whole = open({}), from_hidden = open(kFromHidden), early = open({.layers = 1});
  const auto first = open({.layers = 1, .output = PartOutput::hidden});
  const auto through = open({.output = PartOutput::hidden});
  const auto rest = open({.first_layer = 1, .input = PartInput::hidden});
  const auto attention = open(block_of(0, PartBlocks::attention));
  const auto ffn = open(block_of(0, PartBlocks::ffn));
  const auto attention_alone = open(block_of(0, PartBlocks::attention, false));
  const auto ffn_alone = open(block_of(0, PartBlocks::ffn, false));
  for (const auto* session : {&whole, &from_hidden, &early, &first, &through, &rest, &attention,
                              &ffn, &attention_alone, &ffn_alone})
    ASSERT_TRUE(*session);
  const ModelSpec& spec = whole->plan().spec;
  for (const std::int32_t token : kTokens) {
    SCOPED_TRACE("position " + std::to_string(whole->length()));
    const Floats embedded = embedding(file, spec, token);
    ASSERT_TRUE(whole->step(token) && first->step(token) && through->step(token) &&
                early->step(token));
    ASSERT_TRUE(from_hidden->step_hidden(embedded, token));
    const Floats expected = logits(*whole);
    EXPECT_LE(relative_error(logits(*from_hidden), expected), bound);
    EXPECT_EQ(from_hidden->sampled().value(), whole->sampled().value());

    const Floats between = hidden(*first);
    EXPECT_LE(relative_error(hidden(*early), between), bound);
    ASSERT_TRUE(rest->step_hidden(between));
    EXPECT_LE(relative_error(logits(*rest), expected), bound);
    EXPECT_LE(relative_error(hidden(*rest), hidden(*whole)), bound);
    EXPECT_LE(
        relative_error(hidden(*rest, HiddenState::normed), hidden(*whole, HiddenState::normed)),
        bound);
    // A part without an output norm in its plan gives the normed state all the same.
    EXPECT_LE(relative_error(hidden(*through), hidden(*whole)), bound);
    expect_normed(file, hidden(*through), hidden(*through, HiddenState::normed));
    const Floats normed = hidden(*whole, HiddenState::normed);
    expect_normed(file, hidden(*whole), normed);
    expect_logits_of(file, normed, expected);
    if (::testing::Test::HasFatalFailure()) return;
    // The head after one layer is another model's.
    EXPECT_GT(relative_error(logits(*early), expected), 1e-3);

    const Floats attended = after(*attention, embedded);
    EXPECT_LE(relative_error(after(*ffn, attended), between), bound);
    Floats sum = after(*attention_alone, embedded);
    EXPECT_GT(relative_error(sum, attended), 1e-3);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += embedded[i];
    EXPECT_LE(relative_error(sum, attended), bound);
    sum = after(*ffn_alone, attended);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += attended[i];
    EXPECT_LE(relative_error(sum, between), bound);
  }
  // A part's layers count from 0, and have what the model's have.
  const int positions = whole->length();
  Floats keys(std::size_t(positions * spec.kv_heads * spec.head_dim)), of_part(keys.size());
  ASSERT_TRUE(whole->read_kv({KvPart::keys, 1, 0, positions}, keys));
  ASSERT_TRUE(rest->read_kv({KvPart::keys, 0, 0, positions}, of_part));
  EXPECT_LE(relative_error(of_part, keys),
            std::max(bound, 1e-3));  // by roundings of the cache's format
}

}  // namespace lathe::testing
