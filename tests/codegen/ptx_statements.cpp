// Owns the cutting of PTX text into statements and scopes.
#include "tests/codegen/ptx_statements.h"

#include <algorithm>
#include <cctype>

namespace lathe::testing {
namespace {

bool of_a_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {}

  std::vector<PtxStatement> run() {
    while (at_ < text_.size()) {
      if (skipped()) continue;
      const std::string_view token = next_token();
      if (token == ";") {
        finish();
      } else if (token == "{" && (tokens_.empty() || is_header())) {
        finish();
        out_.push_back({PtxStatement::Kind::open, {}, line_});
      } else if (token == "}" && tokens_.empty()) {
        out_.push_back({PtxStatement::Kind::close, {}, line_});
      } else if (token == ":" && tokens_.size() == 1) {
        out_.push_back({PtxStatement::Kind::label, tokens_, line_});
        tokens_.clear();
      } else {
        if (tokens_.empty()) first_line_ = line_;
        tokens_.push_back(token);
        if (ends_with_its_line()) finish_at_line_end();
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void skip_to(std::string_view what) {
    const std::size_t end = std::min(text_.find(what, at_), text_.size() - what.size());
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end + what.size();
  }

  // White space, a comment or a string.
  bool skipped() {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++at_;
    } else if (starts("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (starts("/*")) {
      skip_to("*/");
    } else if (c == '"') {
      ++at_;
      skip_to("\"");
    } else {
      return false;
    }
    return true;
  }

  std::string_view next_token() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (of_a_name(text_[at_]) || (at_ > begin && starts("::"))))
      at_ += starts("::") ? 2 : 1;
    if (at_ == begin) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // Directives without a semicolon.
  bool ends_with_its_line() const {
    for (const char* name : {".version", ".target", ".address_size", ".loc", ".file"})
      if (tokens_[0] == name) return true;
    return false;
  }
  void finish_at_line_end() {
    while (at_ < text_.size() && text_[at_] != '\n') {
      if (!skipped()) tokens_.push_back(next_token());
    }
    finish();
  }

  bool is_header() const {
    return std::ranges::find(tokens_, ".entry") != tokens_.end() ||
           std::ranges::find(tokens_, ".func") != tokens_.end();
  }

  void finish() {
    if (tokens_.empty()) return;
    const bool directive = tokens_[0][0] == '.';
    out_.push_back({directive ? PtxStatement::Kind::directive : PtxStatement::Kind::instruction,
                    tokens_, first_line_});
    tokens_.clear();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, first_line_ = 1;
  std::vector<std::string_view> tokens_;
  std::vector<PtxStatement> out_;
};

}  // namespace

bool PtxStatement::has(std::string_view token) const {
  return std::ranges::find(tokens, token) != tokens.end();
}

std::vector<PtxStatement> ptx_statements(std::string_view text) {
  return Cutter(text).run();
}

bool is_name(std::string_view token) {
  const char c = token[0];
  return std::isalpha(static_cast<unsigned char>(c)) || c == '%' || c == '$' || c == '_';
}

}  // namespace lathe::testing
