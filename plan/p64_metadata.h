// Owns metadata between a GGUF file and the records of a P64 container.
#pragma once

#include <span>
#include <vector>

#include "lathe/plan/gguf.h"
#include "plan/p64_format.h"
#include "plan/p64_tokenizer.h"

namespace lathe::p64 {

// The metadata, as GGUF entries, of a container that has only records.
struct MadeMetadata {
  std::vector<std::byte> entries;
  std::uint64_t count = 0;
};
// `tokenizer` may be null.
MadeMetadata make_metadata(const Hparams& hparams, std::span<const GgufTensor> tensors,
                           const Tokenizer* tokenizer);

// The records of a file with metadata: what it lacks is 0.
Hparams make_hparams(const GgufFile& file);
// No tokens: it has no vocabulary.
Tokenizer make_tokenizer(const GgufFile& file);

}  // namespace lathe::p64
