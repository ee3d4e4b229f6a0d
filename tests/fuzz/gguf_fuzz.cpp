// Feeds the GGUF parser bytes, and what it lets through to the families and both kinds of plan.
#include <cstring>
#include <vector>

#include "lathe/plan/gguf.h"
#include "lathe/plan/model_spec.h"
#include "lathe/plan/plan.h"
#include "tests/fuzz/fuzzing.h"

using namespace lathe;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of its own, so that a read past the end is one past an allocation.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto file = GgufFile::from_bytes(bytes, "fuzzed");
  fuzz::require_clear(file);
  if (!file) return 0;
  for (const GgufTensor& tensor : (*file)->tensors()) {
    fuzz::require(tensor.offset >= 0 && tensor.bytes >= 0 && std::size_t(tensor.offset) <= size &&
                  std::size_t(tensor.bytes) <= size - std::size_t(tensor.offset));
  }
  fuzz::require_clear(read_model_spec(**file));
  for (const Fusion fusion : {Fusion::none, Fusion::full, Fusion::automatic}) {
    PlanOptions options;
    options.fusion = fusion;
    options.context = 64;
    fuzz::require_clear(build_plan(**file, options));
  }
  return 0;
}
