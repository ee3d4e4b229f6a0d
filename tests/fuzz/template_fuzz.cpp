// Feeds the filler of PTX templates text, with arguments that the first bytes choose.
#include <vector>

#include "codegen/template_filler.h"
#include "tests/fuzz/fuzzing.h"

using namespace lathe;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  static constexpr std::string_view kNames[] = {"entry", "target", "k", "n", "warps", "bias", "u"};
  std::vector<TemplateArgument> arguments;
  for (const std::string_view name : kNames) {
    switch (input.ConsumeIntegralInRange(0, 3)) {
      case 0:
        arguments.push_back({name, input.ConsumeIntegral<std::int64_t>()});
        break;
      case 1:
        arguments.push_back({name, input.ConsumeIntegralInRange<std::int64_t>(-2, 9)});
        break;
      case 2:
        arguments.push_back({name, input.ConsumeRandomLengthString(16)});
        break;
      default:
        break;
    }
  }
  const std::string text = input.ConsumeRemainingBytesAsString();
  const auto filled = fill_template("fuzzed", text, arguments);
  fuzz::require_clear(filled);
  return 0;
}
