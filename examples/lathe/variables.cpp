// Owns the two forms of the list of environment variables.
#include <fmt/format.h>

#include <algorithm>

#include "examples/lathe/commands.h"

namespace lathe::tool {

namespace {

struct Reader {
  VariableReader reader;
  const char* title;
};
constexpr Reader kReaders[] = {{VariableReader::library, "Read by the library"},
                               {VariableReader::programs, "Read by the programs"},
                               {VariableReader::driver, "Read by the NVIDIA driver"}};

std::string plain(const EnvironmentVariable& variable) {
  return fmt::format("  {:<21} {}; {} where it is not set\n  {:<21} {}\n", variable.name,
                     variable.type, variable.unset, "", variable.meaning);
}

std::string markdown(const EnvironmentVariable& variable) {
  return fmt::format("| `{}` | {} | {} | {} |\n", variable.name, variable.type, variable.unset,
                     variable.meaning);
}

}  // namespace

Result<Output> variables(const Options& options) {
  std::string text;
  for (const Reader& reader : kReaders) {
    if (!text.empty()) text += "\n";
    text +=
        options.markdown
            ? fmt::format("## {}\n\n| variable | value | not set | meaning |\n|---|---|---|---|\n",
                          reader.title)
            : fmt::format("{}:\n", reader.title);
    for (const EnvironmentVariable& variable : environment_variables()) {
      if (variable.reader != reader.reader) continue;
      text += options.markdown ? markdown(variable) : plain(variable);
    }
  }
  return Output{.text = text, .word = {}};
}

}  // namespace lathe::tool
