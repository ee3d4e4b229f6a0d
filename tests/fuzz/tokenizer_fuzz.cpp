// Feeds the tokenizer vocabularies and text. What is encoded without special tokens and decoded
// again is the text, for a vocabulary that has all bytes.
#include <memory>
#include <vector>

#include "examples/decode/text/tokenizer.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/text/small_vocabularies.h"

using namespace lathe;
using namespace lathe::text;

namespace {

constexpr const char* kModels[] = {"gpt2", "llama", "no_vocab", "other"};
constexpr const char* kPre[] = {"gpt-2", "llama-bpe", "smollm", "qwen2", "default", "nowhere"};

Vocabulary vocabulary_of(FuzzedDataProvider& input) {
  Vocabulary vocabulary;
  switch (input.ConsumeIntegralInRange(0, 2)) {
    case 0:
      vocabulary = small_bpe();
      break;
    case 1:
      vocabulary = small_spm();
      break;
    default:
      vocabulary.model = input.PickValueInArray(kModels);
      break;
  }
  vocabulary.pre = input.PickValueInArray(kPre);
  const int added = input.ConsumeIntegralInRange(0, 24);
  for (int i = 0; i < added; ++i) {
    vocabulary.tokens.push_back(input.ConsumeRandomLengthString(12));
    // Now and then a list that is shorter than the tokens.
    if (input.ConsumeIntegralInRange(0, 15) != 0)
      vocabulary.types.push_back(input.ConsumeIntegralInRange(-1, 8));
    if (input.ConsumeIntegralInRange(0, 15) != 0)
      vocabulary.scores.push_back(input.ConsumeFloatingPoint<float>());
  }
  const int merges = input.ConsumeIntegralInRange(0, 8);
  for (int i = 0; i < merges; ++i) vocabulary.merges.push_back(input.ConsumeRandomLengthString(12));
  vocabulary.bos = input.ConsumeIntegralInRange(-2, 300);
  vocabulary.eos = input.ConsumeIntegralInRange(-2, 300);
  vocabulary.unknown = input.ConsumeIntegralInRange(-2, 300);
  vocabulary.add_bos = input.ConsumeBool();
  vocabulary.add_space_prefix = input.ConsumeBool();
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  const Vocabulary vocabulary = vocabulary_of(input);
  const bool parse_special = input.ConsumeBool(), add_bos = input.ConsumeBool();
  std::string error;
  const auto tokenizer = Tokenizer::create(vocabulary, &error);
  fuzz::require(tokenizer || !error.empty());
  if (!tokenizer) return 0;
  const std::string text = input.ConsumeRemainingBytesAsString();
  const std::vector<std::int32_t> ids = tokenizer->encode(text, parse_special, add_bos);
  for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer->size());
  static_cast<void>(tokenizer->decode(ids, true));
  for (const std::int32_t id : {-1, tokenizer->size()})
    fuzz::require(tokenizer->piece(id, true).empty());
  return 0;
}
