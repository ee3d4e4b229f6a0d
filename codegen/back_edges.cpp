// Owns the search for unconditional backward branches and what stands in their place.
#include "codegen/back_edges.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

namespace lathe {
namespace {

constexpr std::string_view kDeclarations =
    "\n\t.reg .pred %lathe_back;\n\t.reg .b32 %lathe_threads;\n"
    "\tmov.u32 %lathe_threads, %ntid.x;\n\tsetp.ne.u32 %lathe_back, %lathe_threads, 0;\n";

struct Insertion {
  std::size_t at;
  std::string_view text;
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

class BackEdges {
 public:
  explicit BackEdges(std::string_view ptx) : ptx_(ptx) {}

  std::vector<Insertion> find() {
    for (at_ = 0; at_ < ptx_.size();) {
      if (skip_words()) continue;
      const char c = ptx_[at_];
      if (c == '{' && opens_scope()) {
        if (labels_.empty()) body_ = at_ + 1;
        labels_.emplace_back();
      } else if (c == '{') {
        at_ = std::min(ptx_.find('}', at_), ptx_.size() - 1);  // operands
      } else if (c == '}') {
        close();
      } else if (c == ';') {
        instruction();
      } else if (c == ':' && is_label()) {
        if (!labels_.empty()) labels_.back().insert(statement());
      } else {
        ++at_;
        continue;
      }
      begin_ = ++at_;
    }
    std::ranges::sort(found_, {}, &Insertion::at);
    return std::move(found_);
  }

 private:
  // Past a comment or a string, if one stands here. A statement begins behind a comment before it.
  bool skip_words() {
    const std::string_view rest = ptx_.substr(at_);
    const bool line = rest.starts_with("//"), block = rest.starts_with("/*");
    if (!line && !block && rest[0] != '"') return false;
    const bool before = statement().empty();
    const std::string_view end = line ? "\n" : block ? "*/" : "\"";
    const std::size_t found = ptx_.find(end, at_ + (block ? 2 : 1));
    at_ = found == std::string_view::npos ? ptx_.size() : found + end.size();
    if (before && (line || block)) begin_ = at_;
    return true;
  }

  std::string_view statement() const { return trimmed(ptx_.substr(begin_, at_ - begin_)); }

  bool opens_scope() const {
    const std::string_view before = statement();
    return before.empty() || before.find(".entry") != std::string_view::npos ||
           before.find(".func") != std::string_view::npos;
  }

  // A name alone, and no "::" of an instruction's.
  bool is_label() const {
    return at_ + 1 < ptx_.size() && ptx_[at_ + 1] != ':' && ptx_[at_ - 1] != ':' &&
           statement().find_first_of(" \t\n.") == std::string_view::npos;
  }

  void instruction() {
    const std::string_view all = statement();
    const std::string_view opcode = all.substr(0, all.find_first_of(" \t\n"));
    if (opcode != "bra" && opcode != "bra.uni") return;
    const std::string_view target = trimmed(all.substr(opcode.size()));
    const auto has = [&](const auto& scope) { return scope.contains(target); };
    if (std::ranges::none_of(labels_, has)) return;
    found_.push_back({static_cast<std::size_t>(all.data() - ptx_.data()), "@%lathe_back "});
    found_.push_back({at_ + 1, " trap;"});
    rewritten_ = true;
  }

  void close() {
    if (labels_.empty()) return;
    labels_.pop_back();
    if (!labels_.empty()) return;
    if (rewritten_) found_.push_back({body_, kDeclarations});
    rewritten_ = false;
  }

  std::string_view ptx_;
  std::size_t at_ = 0, begin_ = 0;                  // here, and where this statement begins
  std::size_t body_ = 0;                            // of the function
  std::vector<std::set<std::string_view>> labels_;  // that stood before, by open scope
  bool rewritten_ = false;
  std::vector<Insertion> found_;
};

}  // namespace

std::string with_conditional_back_edges(const std::string& ptx) {
  std::string out;
  std::size_t from = 0;
  for (const Insertion& each : BackEdges(ptx).find()) {
    out.append(ptx, from, each.at - from).append(each.text);
    from = each.at;
  }
  return out.append(ptx, from);
}

std::string for_assembler(std::string ptx, const Target& target) {
  return target.compute / 10 == 12 ? with_conditional_back_edges(ptx) : ptx;
}

}  // namespace lathe
