// Owns the one table of model families. A new family is a file in families/ and a row here.
#include <fmt/format.h>

#include <string>

#include "lathe/plan/model_spec.h"

namespace lathe {

Result<ModelSpec> read_llama(const GgufFile& file);
Result<ModelSpec> read_qwen2(const GgufFile& file);
Result<ModelSpec> read_qwen3(const GgufFile& file);
Result<ModelSpec> read_gemma3(const GgufFile& file);

namespace {

const ModelFamily kFamilies[] = {
    {"llama", "Llama 2 and 3, Mistral, SmolLM2, TinyLlama", read_llama},
    {"qwen2", "Qwen2 and Qwen2.5: biases on q, k and v", read_qwen2},
    {"qwen3", "Qwen3: norms on the heads of q and k", read_qwen3},
    {"gemma3", "Gemma 3 text: local and global layers, norms after each block, GeGLU", read_gemma3},
};

}  // namespace

std::span<const ModelFamily> model_families() {
  return kFamilies;
}

Result<ModelSpec> read_model_spec(const GgufFile& file) {
  LATHE_ASSIGN(const std::string architecture, file.string("general.architecture"));
  std::string known;
  for (const ModelFamily& family : kFamilies) {
    if (architecture == family.architecture) return family.read(file);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return Error{Code::unsupported,
               fmt::format("the model family '{}' (key 'general.architecture') is not supported; "
                           "known: {}",
                           architecture, known),
               {{"file", file.path()}}};
}

}  // namespace lathe
