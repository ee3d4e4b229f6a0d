// Owns the reading of PTX text, line by line: no more grammar than the rules need.
#include "tests/codegen/ptx_text.h"

#include <iterator>
#include <set>
#include <sstream>

#include "codegen/back_edges.h"
#include "tests/codegen/ptx_early.h"
#include "tests/codegen/ptx_lint.h"
#include "tests/codegen/ptx_statements.h"

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

Ptx for_sm_120(Ptx ptx) {
  const std::string line = ".target " + ptx.target.name();
  if (const std::size_t at = ptx.text.find(line); at != std::string::npos)
    ptx.text.replace(at, line.size(), ".target sm_120");
  ptx.target = *parse_target("sm_120");
  ptx.text = with_conditional_back_edges(ptx.text);
  return ptx;
}

std::vector<std::string> inexact_opcodes(std::string_view ptx) {
  std::set<std::string> out;
  for (const PtxStatement& s : ptx_statements(ptx)) {
    if (s.kind != PtxStatement::Kind::instruction) continue;
    for (const std::string_view token : s.tokens) {
      const bool product = (token.starts_with("mma.") || token.starts_with("wgmma.mma")) &&
                           (token.find(".f32") != std::string_view::npos ||
                            token.find(".f64") != std::string_view::npos);
      if (product || token.find(".approx") != std::string_view::npos ||
          token.starts_with("div.full"))
        out.emplace(token);
    }
  }
  return {out.begin(), out.end()};
}

std::string inexact_faults(std::string_view ptx, const KernelKey& key) {
  const auto inexact = row(key.type).inexact;
  const char* said = inexact ? inexact(key) : nullptr;
  std::istringstream words(said ? said : "");
  const std::set<std::string> stems{std::istream_iterator<std::string>(words), {}};
  const std::vector<std::string> found = inexact_opcodes(ptx);
  if (said && found.empty()) return std::string("no instruction of: ") + said + "\n";
  std::string out;
  for (const std::string& opcode : found)
    if (!stems.contains(opcode.substr(0, opcode.find('.'))))
      out += "an inexact instruction that the row does not name: " + opcode + "\n";
  return out;
}

std::string broken_rules(const Ptx& ptx, const KernelKey& key) {
  std::string out =
      ptx_faults(ptx, key) + inexact_faults(ptx.text, key) + early_faults(ptx.text, key);
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
    need(opcode != "bfi.b64" || code.find(", 16, 48") == std::string::npos,
         "halves joined in 64 bits, which ptxas 13.0 has got wrong: " + code);
    need(code.find(".ftz") == std::string::npos || opcode.find(".approx") != std::string::npos,
         "a flush of subnormals: " + code);
  }
  return out;
}

}  // namespace lathe::testing
