#include "tests/codegen/ptx_early.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "tests/codegen/ptx_statements.h"

namespace lathe::testing {
namespace {

using Kind = PtxStatement::Kind;

// The opcode, behind a predicate if there is one.
std::string_view opcode(const PtxStatement& s) {
  std::size_t at = 0;
  if (s.tokens[0] == "@") at = s.tokens[1] == "!" ? 3 : 2;
  return at < s.tokens.size() ? s.tokens[at] : std::string_view();
}

bool has_part(std::string_view opcode, std::string_view part) {
  return opcode.find(part) != std::string_view::npos;
}

// Whether it may touch global memory that a kernel before has to do with. Weights are copied by the
// ops that wait by themselves, whose copies nobody can tell apart here.
bool touches(std::string_view op, bool copies) {
  if (op.starts_with("atom") || op.starts_with("red.")) return !has_part(op, ".shared");
  if (!has_part(op, ".global") || op.starts_with("prefetch")) return false;
  if (op.starts_with("cp.async")) return !copies;
  return !op.starts_with("cvta") && !has_part(op, ".nc");
}

// Where each branch may go: a label of its own scope, else of one around it.
class Labels {
 public:
  explicit Labels(const std::vector<PtxStatement>& statements) {
    std::vector<int> open = {0};
    for (std::size_t i = 0; i < statements.size(); ++i) {
      const PtxStatement& s = statements[i];
      if (s.kind == Kind::open) open.push_back(++scopes_);
      scopes_of_.push_back(open);
      if (s.kind == Kind::close && open.size() > 1) open.pop_back();
      if (s.kind == Kind::label) places_[{open.back(), s.tokens[0]}] = i;
    }
  }
  std::size_t find(std::size_t branch, std::string_view name) const {
    const std::vector<int>& open = scopes_of_[branch];
    for (auto scope = open.rbegin(); scope != open.rend(); ++scope)
      if (const auto found = places_.find({*scope, name}); found != places_.end())
        return found->second;
    return scopes_of_.size();
  }

 private:
  int scopes_ = 0;
  std::vector<std::vector<int>> scopes_of_;
  std::map<std::pair<int, std::string_view>, std::size_t> places_;
};

}  // namespace

std::string early_faults(std::string_view ptx, const KernelKey& key) {
  if (!key.early) return {};
  const std::vector<PtxStatement> statements = ptx_statements(ptx);
  const Labels labels(statements);
  const bool copies = row(key.type).call(key).waits;
  std::string out;
  const auto is = [](const PtxStatement& s, std::string_view wanted) {
    return s.kind == Kind::instruction && opcode(s) == wanted;
  };
  if (std::ranges::none_of(
          statements, [&](const auto& s) { return is(s, "griddepcontrol.launch_dependents"); }))
    out += "the kernel does not let its dependents begin\n";
  std::size_t entry = 0;
  while (entry < statements.size() && statements[entry].kind != Kind::open) ++entry;
  std::vector<bool> seen(statements.size() + 1);
  std::vector<std::size_t> left = {entry};
  while (!left.empty()) {
    const std::size_t at = left.back();
    left.pop_back();
    if (at >= statements.size() || seen[at]) continue;
    seen[at] = true;
    const PtxStatement& s = statements[at];
    const std::string line = "line " + std::to_string(s.line);
    const bool instruction = s.kind == Kind::instruction && !s.tokens.empty();
    const std::string_view op = instruction ? opcode(s) : std::string_view();
    if (op == "griddepcontrol.wait") continue;
    if (touches(op, copies)) out += line + ": " + std::string(op) + " before the wait\n";
    const bool always = instruction && s.tokens[0] != "@";
    if (op == "ret" || op == "exit") out += line + ": the kernel ends without a wait\n";
    if (op == "bra" || op == "bra.uni") {
      const auto name = std::ranges::find(s.tokens, op) + 1;
      left.push_back(labels.find(at, *name));
    }
    const bool leaves = op == "bra" || op == "bra.uni" || op == "ret" || op == "exit";
    if (!(leaves && always)) left.push_back(at + 1);
  }
  return out;
}

}  // namespace lathe::testing
