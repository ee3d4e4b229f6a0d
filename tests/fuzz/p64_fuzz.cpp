// Feeds the P64 reader bytes, what it lets through to the families and plans, and the model back
// into a GGUF file, which must be one.
#include <vector>

#include "lathe/plan/gguf.h"
#include "lathe/plan/model_report.h"
#include "lathe/plan/plan.h"
#include "plan/p64_parser.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/plan/p64_image.h"

using namespace lathe;

namespace {

void use(const GgufFile& file) {
  fuzz::require_clear(report_model(file));
  for (const Fusion fusion : {Fusion::none, Fusion::full}) {
    PlanOptions options;
    options.fusion = fusion;
    options.context = 64;
    fuzz::require_clear(build_plan(file, options));
  }
  const auto layout = lay_out_gguf(file);
  fuzz::require_clear(layout);
  if (!layout) return;
  const std::vector<std::byte> bytes = lathe::testing::assemble(*layout);
  const auto again = GgufFile::from_bytes(bytes, "written");
  fuzz::require(bool(again) && (*again)->tensors().size() == file.tensors().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of its own, so that a read past the end is one past an allocation.
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                               reinterpret_cast<const std::byte*>(data) + size);
  if (!is_p64(bytes)) return 0;
  fuzz::require_clear(GgufFile::from_bytes(bytes, "fuzzed", Integrity::full));
  const auto file = GgufFile::from_bytes(bytes, "fuzzed", Integrity::structure);
  fuzz::require_clear(file);
  if (!file) return 0;
  for (const GgufTensor& tensor : (*file)->tensors()) {
    fuzz::require(tensor.offset >= 0 && tensor.bytes >= 0 && std::size_t(tensor.offset) <= size &&
                  std::size_t(tensor.bytes) <= size - std::size_t(tensor.offset));
  }
  use(**file);
  return 0;
}
