// Owns the filling of PTX templates: a template becomes a flat list of steps, which then run.
#include "codegen/template_filler.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

namespace lathe {
namespace {

// What a template may ask for, so that a wrong one ends in an error instead of in all memory.
constexpr std::int64_t kMaxRepeat = 4096;
constexpr std::size_t kMaxSteps = 1 << 20;
constexpr std::size_t kMaxOutput = 1 << 24;

// A number in a template: a constant, or the value of a name.
struct Bound {
  std::int64_t constant = 0;
  std::optional<std::size_t> slot = {};
};

// One step. Steps refer to each other by index: `other` is where an untaken condition goes, where
// a repetition ends, and where its end goes back to.
struct Step {
  enum class Kind { text, hole, condition, jump, repeat, again } kind;
  int line = 0;
  std::string_view text = {};  // the text; a hole's format
  std::size_t slot = 0;        // the name a hole, condition or repetition uses
  std::size_t other = 0;
  Bound first = {}, last = {};  // of a repetition
};

// A name and its present value: an argument, or the variable of a repetition.
struct Slot {
  std::string_view name;
  std::variant<std::int64_t, std::string> value;
  bool is_argument = true;
  bool in_scope = true;
  bool used = false;
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  for (char c : text)
    if (!is_letter(c) && !is_digit(c)) return false;
  return true;
}

// [0][width][type], a width from 1 to 99: the part of fmt's format that PTX needs.
bool is_format(std::string_view text) {
  if (text.starts_with('0') && text.size() > 1 && is_digit(text[1])) text.remove_prefix(1);
  if (text.starts_with('0')) return false;
  for (int i = 0; i < 2 && !text.empty() && is_digit(text[0]); ++i) text.remove_prefix(1);
  return text.empty() || text == "d" || text == "x" || text == "X";
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlank, end);
  }
  return words;
}

class Parser {
 public:
  Parser(std::string_view name, std::vector<Slot>& slots) : name_(name), slots_(slots) {}

  Result<std::vector<Step>> parse(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
      const std::string_view line = text.substr(0, size);
      text.remove_prefix(size);
      const std::size_t start = line.find_first_not_of(" \t");
      if (start != std::string_view::npos && line[start] == '@' && start + 1 < line.size() &&
          is_letter(line[start + 1]))
        LATHE_TRY(directive(line.substr(0, line.find('\n'))));
      else
        LATHE_TRY(text_line(line));
    }
    if (!open_.empty()) return wrong(steps_[open_.back().step].line, "this block has no '@end'");
    for (const Slot& slot : slots_)
      if (!slot.used && slot.is_argument)
        return Error{Code::internal, fmt::format("{}: nothing uses '{}'", name_, slot.name), {}};
    return std::move(steps_);
  }

 private:
  struct Open {
    std::size_t step;  // of the condition or repetition; after '@else', of the jump over it
    bool is_repeat;
    bool has_else;
  };

  Error wrong(int line, std::string what) const {
    return {Code::internal, fmt::format("{}:{}: {}", name_, line, what), {}};
  }
  Error wrong(std::string what) const { return wrong(line_, std::move(what)); }

  Result<std::size_t> use(std::string_view name) {
    if (!is_name(name)) return wrong(fmt::format("'{}' is not a name", name));
    for (std::size_t i = slots_.size(); i-- > 0;)
      if (slots_[i].in_scope && slots_[i].name == name) {
        slots_[i].used = true;
        return i;
      }
    return wrong(fmt::format("'{}' has no value", name));
  }

  Result<void> text_line(std::string_view line) {
    while (!line.empty()) {
      const std::size_t open = std::min(line.find("${"), line.size());
      if (open > 0) add_text(line.substr(0, open));
      line.remove_prefix(open);
      if (line.empty()) break;
      const std::size_t close = line.find('}');
      if (close == std::string_view::npos) return wrong("a '${' has no '}' on its line");
      const std::string_view hole = line.substr(2, close - 2);
      line.remove_prefix(close + 1);
      const std::size_t colon = std::min(hole.find(':'), hole.size());
      const std::string_view format =
          colon < hole.size() ? hole.substr(colon + 1) : hole.substr(colon);
      LATHE_ASSIGN(const std::size_t slot, use(hole.substr(0, colon)));
      if (!is_format(format)) return wrong(fmt::format("'{}' is not a format", format));
      if (!format.empty() && !std::holds_alternative<std::int64_t>(slots_[slot].value))
        return wrong(fmt::format("'{}' is text and takes no format", slots_[slot].name));
      steps_.push_back({Step::Kind::hole, line_, format, slot});
    }
    return {};
  }

  // Lines of text that follow each other become one step; a directive's line always parts them.
  void add_text(std::string_view text) {
    Step* before = steps_.empty() ? nullptr : &steps_.back();
    if (before && before->kind == Step::Kind::text &&
        before->text.data() + before->text.size() == text.data())
      before->text = {before->text.data(), before->text.size() + text.size()};
    else
      steps_.push_back({Step::Kind::text, line_, text});
  }

  Result<void> directive(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    if (words[0] == "@if") return condition(words);
    if (words[0] == "@else") return otherwise(words);
    if (words[0] == "@repeat") return repeat(words);
    if (words[0] == "@end") return end(words);
    return wrong(
        fmt::format("'{}' is not a directive (a predicate's name starts with '%')", words[0]));
  }

  Result<void> condition(const std::vector<std::string_view>& words) {
    if (words.size() != 2) return wrong("a condition is '@if name'");
    LATHE_ASSIGN(const std::size_t slot, number(words[1]));
    open_.push_back({steps_.size(), false, false});
    steps_.push_back({Step::Kind::condition, line_, {}, slot});
    return {};
  }

  Result<void> otherwise(const std::vector<std::string_view>& words) {
    if (words.size() != 1) return wrong("'@else' stands alone");
    if (open_.empty() || open_.back().is_repeat || open_.back().has_else)
      return wrong("this '@else' belongs to no '@if'");
    Open& open = open_.back();
    steps_.push_back({Step::Kind::jump, steps_[open.step].line});
    steps_[open.step].other = steps_.size();
    open.step = steps_.size() - 1;
    open.has_else = true;
    return {};
  }

  Result<void> repeat(const std::vector<std::string_view>& words) {
    if (words.size() != 6 || words[2] != "from" || words[4] != "to")
      return wrong("a repetition is '@repeat name from first to last'");
    Step step{Step::Kind::repeat, line_};
    LATHE_ASSIGN(step.first, bound(words[3]));
    LATHE_ASSIGN(step.last, bound(words[5]));
    if (!is_name(words[1])) return wrong(fmt::format("'{}' is not a name", words[1]));
    for (const Slot& slot : slots_)
      if (slot.in_scope && slot.name == words[1])
        return wrong(fmt::format("'{}' has a value already", words[1]));
    step.slot = slots_.size();
    slots_.push_back({words[1], std::int64_t{0}, false});
    open_.push_back({steps_.size(), true, false});
    steps_.push_back(step);
    return {};
  }

  Result<void> end(const std::vector<std::string_view>& words) {
    if (words.size() != 1) return wrong("'@end' stands alone");
    if (open_.empty()) return wrong("this '@end' ends nothing");
    const Open open = open_.back();
    open_.pop_back();
    if (open.is_repeat) {
      slots_[steps_[open.step].slot].in_scope = false;
      Step again{Step::Kind::again, line_};
      again.other = open.step;
      steps_.push_back(again);
    }
    steps_[open.step].other = steps_.size();
    return {};
  }

  // The slot of a name that stands for a number.
  Result<std::size_t> number(std::string_view name) {
    LATHE_ASSIGN(const std::size_t slot, use(name));
    if (std::holds_alternative<std::int64_t>(slots_[slot].value)) return slot;
    return wrong(fmt::format("'{}' is text, not a number", name));
  }

  Result<Bound> bound(std::string_view word) {
    Bound bound;
    if (is_letter(word[0])) {
      LATHE_ASSIGN(bound.slot, number(word));
      return bound;
    }
    const auto end = std::from_chars(word.data(), word.data() + word.size(), bound.constant);
    if (end.ec != std::errc() || end.ptr != word.data() + word.size())
      return wrong(fmt::format("'{}' is neither a number nor a name", word));
    return bound;
  }

  std::string_view name_;
  std::vector<Slot>& slots_;
  int line_ = 0;
  std::vector<Step> steps_;
  std::vector<Open> open_;
};

std::int64_t value_of(const Slot& slot) {
  const std::int64_t* value = std::get_if<std::int64_t>(&slot.value);
  return value ? *value : 0;
}

void append(std::string& out, std::string_view format, const Slot& slot) {
  if (const std::string* text = std::get_if<std::string>(&slot.value))
    out += *text;
  else if (format.empty())
    out += fmt::format("{}", value_of(slot));
  else
    out += fmt::format(fmt::runtime(fmt::format("{{:{}}}", format)), value_of(slot));
}

Result<std::string> run(std::string_view name, const std::vector<Step>& steps,
                        std::vector<Slot>& slots) {
  const auto value = [&](const Bound& bound) {
    return bound.slot ? value_of(slots[*bound.slot]) : bound.constant;
  };
  std::string out;
  std::size_t count = 0;
  for (std::size_t at = 0; at < steps.size();) {
    const Step& step = steps[at];
    if (++count > kMaxSteps || out.size() > kMaxOutput)
      return Error{Code::internal,
                   fmt::format("{}:{}: the template grows past its limit", name, step.line),
                   {}};
    switch (step.kind) {
      case Step::Kind::text:
        out += step.text;
        ++at;
        break;
      case Step::Kind::hole:
        append(out, step.text, slots[step.slot]);
        ++at;
        break;
      case Step::Kind::condition:
        at = value_of(slots[step.slot]) != 0 ? at + 1 : step.other;
        break;
      case Step::Kind::jump:
        at = step.other;
        break;
      case Step::Kind::repeat: {
        const std::int64_t first = value(step.first), last = value(step.last);
        if (last >= first && static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) >=
                                 static_cast<std::uint64_t>(kMaxRepeat))
          return Error{Code::internal,
                       fmt::format("{}:{}: {} to {} is more than {} repetitions", name, step.line,
                                   first, last, kMaxRepeat),
                       {}};
        slots[step.slot].value = first;
        at = last >= first ? at + 1 : step.other;
        break;
      }
      case Step::Kind::again: {
        const Step& repeat = steps[step.other];
        const std::int64_t present = value_of(slots[repeat.slot]);
        if (present < value(repeat.last)) {
          slots[repeat.slot].value = present + 1;
          at = step.other + 1;
        } else {
          ++at;
        }
        break;
      }
    }
  }
  return out;
}

}  // namespace

Result<std::string> fill_template(std::string_view name, std::string_view text,
                                  std::span<const TemplateArgument> arguments) {
  std::vector<Slot> slots;
  for (const TemplateArgument& argument : arguments)
    slots.push_back({argument.name, argument.value});
  LATHE_ASSIGN(const std::vector<Step> steps, Parser(name, slots).parse(text));
  return run(name, steps, slots);
}

}  // namespace lathe
