// Owns the two forms of what a session chooses.
#include "examples/decode/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/command_line.h"

namespace lathe::decode {

Result<std::vector<Selected>> explain_session(const GgufFile& file, const Options& options) {
  Result<std::vector<Selected>> choices = Session::explain(file, options.session);
  if (choices || !options.falls_back(choices.error())) return choices;
  if (!options.quiet)
    command_line::say(fmt::format("decode: on the CPU: {}\n", choices.error().message));
  SessionOptions on_cpu = options.session;
  on_cpu.executor = ExecutorKind::cpu;
  return Session::explain(file, on_cpu);
}

std::string choices_text(const std::vector<Selected>& choices) {
  std::size_t what = 0, value = 0;
  for (const Selected& choice : choices) {
    what = std::max(what, choice.what.size());
    value = std::max(value, choice.value.size());
  }
  std::string text;
  for (const Selected& choice : choices)
    text +=
        fmt::format("{:<{}}  {:<{}}  {}\n", choice.what, what, choice.value, value, choice.reason);
  return text;
}

std::string choices_json(const std::vector<Selected>& choices) {
  auto list = nlohmann::ordered_json::array();
  for (const Selected& choice : choices)
    list.push_back({{"what", choice.what},
                    {"value", choice.value},
                    {"reason", choice.reason},
                    {"set", choice.set}});
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lathe::decode
