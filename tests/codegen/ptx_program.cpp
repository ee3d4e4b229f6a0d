// Owns PTX text as instructions that can be run: registers, labels and constants are resolved.
#include "tests/codegen/ptx_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "tests/codegen/ptx_statements.h"

namespace lathe::testing {
namespace {

using Kind = PtxStatement::Kind;
using Tokens = std::vector<std::string_view>;

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

int whole(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// No bits where it is no type.
PtxType type_of(std::string_view word) {
  if (word == "pred") return {'p', 1};
  if (word.size() < 2 || std::string_view("busf").find(word[0]) == std::string_view::npos)
    return {};
  if (word.substr(1).find_first_not_of("0123456789") != std::string_view::npos) return {};
  return {word[0], whole(word.substr(1))};
}

// A constant expression of PTX, in 64 bits: sums of products, shifted.
class Constant {
 public:
  Constant(const Tokens& tokens, std::size_t& at) : tokens_(tokens), at_(at) {}

  std::uint64_t shifted() {
    std::uint64_t value = sum();
    while (at_ + 1 < tokens_.size() && (is(">") || is("<")) && tokens_[at_ + 1] == tokens_[at_]) {
      const bool right = is(">");
      at_ += 2;
      const std::uint64_t by = sum();
      value = right ? value >> by : value << by;
    }
    return value;
  }

 private:
  bool is(std::string_view token) const { return at_ < tokens_.size() && tokens_[at_] == token; }

  std::uint64_t sum() {
    std::uint64_t value = product();
    while (is("+") || is("-")) {
      const bool plus = tokens_[at_++] == "+";
      const std::uint64_t other = product();
      value = plus ? value + other : value - other;
    }
    return value;
  }
  std::uint64_t product() {
    std::uint64_t value = one();
    while (is("*") || is("/")) {
      const bool times = tokens_[at_++] == "*";
      const std::uint64_t other = one();
      value = times ? value * other : other == 0 ? 0 : value / other;
    }
    return value;
  }
  std::uint64_t one() {
    if (is("-")) {
      ++at_;
      return 0 - one();
    }
    if (is("(")) {
      ++at_;
      const std::uint64_t value = shifted();
      ++at_;
      return value;
    }
    if (at_ >= tokens_.size()) return 0;
    std::string_view digits = tokens_[at_++];
    int base = 10;
    if (digits.starts_with("0x") || digits.starts_with("0f")) {
      base = 16;
      digits.remove_prefix(2);
    }
    std::uint64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    return value;
  }

  const Tokens& tokens_;
  std::size_t& at_;
};

class Reader {
 public:
  Result<PtxProgram> run(std::string_view text) {
    const std::vector<PtxStatement> statements = ptx_statements(text);
    int next = 0;
    for (const PtxStatement& s : statements) {
      if (s.kind == Kind::label) labels_[s.tokens[0]] = next;
      if (s.kind == Kind::instruction) ++next;
    }
    scopes_.emplace_back();
    for (const PtxStatement& s : statements) {
      line_ = s.line;
      if (s.kind == Kind::open) scopes_.emplace_back();
      if (s.kind == Kind::close) scopes_.pop_back();
      if (s.kind == Kind::directive) directive(s.tokens);
      if (s.kind == Kind::instruction) instruction(s.tokens);
      if (!problem_.empty()) return Error{Code::unsupported, problem_, {}};
    }
    return std::move(out_);
  }

 private:
  struct Range {
    int first, count;  // registers
  };
  struct Scope {
    std::map<std::string_view, Range> names, ranges;  // %r, and %r<5> without the number
  };

  void wrong(const std::string& what) {
    if (problem_.empty()) problem_ = fmt::format("{}: {}", line_, what);
  }

  void directive(const Tokens& tokens) {
    if (tokens[0] == ".reg") {
      for (std::size_t i = 2; i < tokens.size(); ++i) {
        if (!is_name(tokens[i])) continue;
        const bool many = i + 2 < tokens.size() && tokens[i + 1] == "<";
        const int count = many ? whole(tokens[i + 2]) : 1;
        (many ? scopes_.back().ranges : scopes_.back().names)[tokens[i]] = {out_.registers, count};
        out_.registers += count;
      }
      return;
    }
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i] == ".param") {
        std::size_t last = i + 1;
        while (last + 1 < tokens.size() && tokens[last + 1] != "," && tokens[last + 1] != ")")
          ++last;
        parameters_[tokens[last]] = 8 * out_.parameters++;
      }
      // The one array of dynamic shared memory, at its beginning.
      if (tokens[i] == ".shared" && tokens[0] == ".extern")
        for (const std::string_view token : tokens)
          if (is_name(token)) parameters_[token] = 0;
    }
  }

  int find(std::string_view name) {
    const std::size_t stem = name.find_last_not_of("0123456789") + 1;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto it = scope->names.find(name); it != scope->names.end())
        return it->second.first;
      if (stem == name.size()) continue;
      const int number = whole(name.substr(stem));
      if (const auto it = scope->ranges.find(name.substr(0, stem));
          it != scope->ranges.end() && number < it->second.count)
        return it->second.first + number;
    }
    return -1;
  }

  PtxOperand named(std::string_view name) {
    using enum PtxOperand::Kind;
    if (name == "_") return {};
    if (name == "%tid.x") return {special, kTidX};
    if (name == "%ctaid.x") return {special, kCtaidX};
    if (name == "%ctaid.y") return {special, kCtaidY};
    if (const int slot = find(name); slot >= 0) return {reg, slot};
    if (const auto it = labels_.find(name); it != labels_.end()) return {label, it->second};
    if (const auto it = parameters_.find(name); it != parameters_.end())
      return {constant, 0, std::uint64_t(it->second)};
    wrong(fmt::format("the name {} is not known", name));
    return {};
  }

  PtxOperand operand(const Tokens& tokens, std::size_t& at) {
    const std::string_view token = tokens[at];
    if (token == "{") {
      PtxOperand out{PtxOperand::Kind::vector};
      for (++at; at < tokens.size() && tokens[at] != "}";) {
        out.parts.push_back(operand(tokens, at));
        if (at < tokens.size() && tokens[at] == ",") ++at;
      }
      ++at;
      return out;
    }
    if (token == "[") {
      PtxOperand out{PtxOperand::Kind::memory};
      ++at;
      if (is_name(tokens[at])) out.parts.push_back(named(tokens[at++]));
      if (tokens[at] == "-") wrong("an address has a sum, and no difference");
      if (tokens[at] == "+") ++at;
      if (tokens[at] != "]") out.value = Constant(tokens, at).shifted();
      ++at;
      return out;
    }
    if (token == "!") {
      PtxOperand out = named(tokens[at + 1]);
      out.inverted = true;
      at += 2;
      return out;
    }
    if (is_name(token)) return named(tokens[at++]);
    return {PtxOperand::Kind::constant, 0, Constant(tokens, at).shifted()};
  }

  void instruction(const Tokens& tokens) {
    PtxInstruction out;
    out.line = line_;
    std::size_t at = 0;
    if (tokens[0] == "@") {
      out.guard_inverted = tokens[1] == "!";
      at = out.guard_inverted ? 3 : 2;
      out.guard = named(tokens[at - 1]).index;
    }
    out.opcode = tokens[at];
    const std::vector<std::string_view> words = split(tokens[at++], '.');
    out.name = PtxWord::find(words[0]);
    if (out.name < 0) wrong(fmt::format("the instruction {} is not known", words[0]));
    for (std::size_t i = 1; i < words.size(); ++i) {
      const PtxType type = type_of(words[i]);
      if (type.bits > 0)
        out.types.push_back(type);
      else if (const int word = PtxWord::find(words[i]); word >= 0)
        out.words |= std::uint64_t{1} << word;
    }
    while (at < tokens.size() && problem_.empty()) {
      out.operands.push_back(operand(tokens, at));
      if (at < tokens.size() && tokens[at++] != ",") wrong("a comma is missing");
    }
    out_.instructions.push_back(std::move(out));
  }

  PtxProgram out_;
  std::vector<Scope> scopes_;
  std::map<std::string_view, int> labels_, parameters_;
  int line_ = 0;
  std::string problem_;
};

}  // namespace

Result<PtxProgram> ptx_program(std::string_view text) {
  return Reader().run(text);
}

}  // namespace lathe::testing
