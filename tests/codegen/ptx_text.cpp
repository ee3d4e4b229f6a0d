// Owns the reading of PTX text, line by line: no more grammar than the rules need.
#include "tests/codegen/ptx_text.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "tests/codegen/ptx_lint.h"

namespace lathe::testing {
namespace {

// The line without comment, label, predicate and white space at its ends.
std::string instruction(std::string line) {
  line = line.substr(0, line.find("//"));
  const auto trim = [&] {
    const std::size_t first = line.find_first_not_of(" \t{");
    line = first == std::string::npos ? "" : line.substr(first);
  };
  trim();
  if (!line.empty() && line[0] == '@') {
    const std::size_t space = line.find_first_of(" \t");
    line = space == std::string::npos ? "" : line.substr(space);
    trim();
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.pop_back();
  return line;
}

bool names_space(std::string_view opcode) {
  for (const char* space : {".global", ".shared", ".param", ".const"})
    if (opcode.find(space) != std::string_view::npos) return true;
  return false;
}

bool accesses_memory(std::string_view opcode) {
  for (const char* start : {"ld.", "ldu.", "st.", "atom.", "red."})
    if (opcode.starts_with(start)) return true;
  return false;
}

// Accesses to global memory on some way from the beginning that does not come by the wait.
int accesses_before_wait(const std::string& text) {
  std::vector<std::string> code;
  std::vector<bool> predicated;
  std::map<std::string, std::size_t> labels;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t{");
    predicated.push_back(first != std::string::npos && line[first] == '@');
    code.push_back(instruction(line));
    if (code.back().ends_with(':')) labels[code.back()] = code.size() - 1;
  }
  int accesses = 0;
  std::vector<bool> seen(code.size());
  std::vector<std::size_t> from = {0};
  while (!from.empty()) {
    std::size_t at = from.back();
    from.pop_back();
    for (; at < code.size() && !seen[at]; ++at) {
      seen[at] = true;
      if (code[at].starts_with("griddepcontrol.wait")) break;
      const std::string opcode = code[at].substr(0, code[at].find_first_of(" \t"));
      accesses += accesses_memory(opcode) && opcode.find(".global") != std::string::npos;
      if (!opcode.starts_with("bra")) continue;
      const std::string target = code[at].substr(code[at].find_last_of(" \t") + 1);
      const auto found = labels.find(target.substr(0, target.find(';')) + ":");
      if (found != labels.end()) from.push_back(found->second);
      if (!predicated[at]) break;
    }
  }
  return accesses;
}

}  // namespace

std::vector<Target> tested_targets() {
  std::vector<Target> out;
  for (const char* name : {"sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"})
    out.push_back(*parse_target(name));
  return out;
}

std::vector<Target> tested_targets(const KernelKey& key) {
  std::vector<Target> out = tested_targets();
  std::erase_if(out, [&](const Target& target) { return !target_covers(key, target); });
  return out;
}

std::vector<std::string> entry_parameters(std::string_view ptx) {
  std::vector<std::string> out;
  const std::size_t entry = ptx.find(".entry ");
  if (entry == std::string_view::npos) return out;
  const std::string_view list = ptx.substr(entry, ptx.find(')', entry) - entry);
  for (std::size_t at = list.find(".param"); at != std::string_view::npos;
       at = list.find(".param", at + 1))
    out.emplace_back(list.substr(at + 7, list.find_first_of(",\n", at) - at - 7));
  return out;
}

std::string order_faults(const Ptx& ptx, const KernelKey& key) {
  const bool waits = waits_for_predecessors(ptx.route, ptx.target);
  if (!waits) {
    const bool any = ptx.text.find("griddepcontrol") != std::string::npos;
    return any ? "griddepcontrol, which the target lacks\n" : "";
  }
  if (ptx.text.find("griddepcontrol.wait") == std::string::npos)
    return "it does not wait for those before it\n";
  const bool counts = row(key.type).call(key).waits && key.tokens > 0;
  return accesses_before_wait(ptx.text) > (counts ? 1 : 0)
             ? "it touches memory before it waits for those before it\n"
             : "";
}

std::string broken_rules(const Ptx& ptx, const KernelKey& key) {
  std::string out = ptx_faults(ptx, key) + order_faults(ptx, key);
  const auto need = [&](bool good, const std::string& rule) {
    if (!good) out += rule + "\n";
  };
  const std::string& text = ptx.text;
  need(text.find(".version " + ptx.target.ptx_version() + "\n") != std::string::npos,
       "no .version " + ptx.target.ptx_version());
  need(text.find(".target " + ptx.target.name()) != std::string::npos,
       "no .target " + ptx.target.name());
  need(ptx.entry == key.symbol(), "the entry point is " + ptx.entry);
  need(text.find(".entry " + ptx.entry + "(") != std::string::npos, "no .entry " + ptx.entry);
  const std::vector<std::string> parameters = entry_parameters(text);
  need(parameters.size() == row(key.type).params(key).size(),
       "it has " + std::to_string(parameters.size()) + " parameters");
  for (const std::string& parameter : parameters)
    need(parameter.starts_with(".u64") || parameter.starts_with(".b64"),
         "a parameter that is no pointer: " + parameter);
  // matvec's streams of tiles keep their addresses in shared memory, where no compiler follows
  // them.
  const bool generic = key.type == KernelType::matvec;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string code = instruction(line);
    const std::string opcode = code.substr(0, code.find_first_of(" \t"));
    need(opcode != ".local" && code.find(".local.") == std::string::npos, "local memory: " + code);
    need(!opcode.starts_with("call"), "a call: " + code);
    need(!accesses_memory(opcode) || names_space(opcode) || (generic && opcode.starts_with("ld.")),
         "a generic access: " + code);
    // Softmax on the matrix units, whose sums have no bits to keep anyway.
    if (key.type == KernelType::attend_tokens && opcode == "ex2.approx.ftz.f32") continue;
    need(code.find(".approx") == std::string::npos, "an approximate instruction: " + code);
    need(code.find(".ftz") == std::string::npos, "a flush of subnormals: " + code);
  }
  return out;
}

}  // namespace lathe::testing
