// Owns the way from a GGUF file's metadata to a Vocabulary.
#pragma once

#include "examples/decode/text/vocabulary.h"
#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"

namespace lathe::text {

// Fills in what the file leaves out as the format's other readers do. Whether the vocabulary can be
// used is for Tokenizer::create to say.
Result<Vocabulary> vocabulary_from_gguf(const GgufFile& file);

}  // namespace lathe::text
