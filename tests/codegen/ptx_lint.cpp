// Owns the static checks of PTX text that no assembler makes, or makes too late.
#include "tests/codegen/ptx_lint.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <sstream>

#include "tests/codegen/ptx_features.h"
#include "tests/codegen/ptx_statements.h"

namespace lathe::testing {
namespace {

using Kind = PtxStatement::Kind;
using Tokens = std::vector<std::string_view>;

constexpr int kMostSharedBytes = 227 * 1024;

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

int number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(starts, [&](std::string_view s) { return text.starts_with(s); });
}

struct Declared {
  std::string_view space;  // ".reg", ".shared", ".param", ".global", ".const", ".local"
  int count = -1;          // of "%r<5>"; -1 for a name of its own
  int line = 0;
  bool named = false;
};

// A function's registers by what happens to them.
struct Register {
  int first_read = 0;
  bool written = false;
  std::string_view space;  // of the address in it; "" when not known
  bool spaces_differ = false;
};

// What is declared between two braces.
struct Scope {
  std::map<std::string_view, Declared> names, ranges;  // %r, and %r<5> without the number
  int number;
};

struct Branch {
  int line;
  std::string_view target;
  std::vector<int> scopes;  // where the label may be
};

class Lint {
 public:
  explicit Lint(const PtxLaunch& launch) : launch_(launch) {}

  std::string run(std::string_view ptx) {
    const std::vector<PtxStatement> statements = ptx_statements(ptx);
    for (const PtxStatement& s : statements)  // functions may be called before they are defined
      if (s.kind == Kind::directive && (s.has(".func") || s.has(".entry"))) learn_function(s);
    open_scope();
    for (const PtxStatement& s : statements) visit(s);
    while (!scopes_.empty()) close_scope();
    if (entries_ != 1) fault(0, text(entries_, " entry points"));
    if (static_bytes_ > 0 && (launch_.shared_bytes > 0 || dynamic_))
      fault(0, "shared memory is static and dynamic");
    if (static_bytes_ + static_cast<int>(launch_.shared_bytes) > kMostSharedBytes)
      fault(0, text(static_bytes_ + static_cast<int>(launch_.shared_bytes),
                    " bytes of shared memory"));
    return faults_;
  }

 private:
  void fault(int line, const std::string& what) { faults_ += text(line, ": ", what, "\n"); }

  void learn_function(const PtxStatement& s) {
    for (std::size_t i = 0; i + 1 < s.tokens.size(); ++i)
      if (s.tokens[i] == "(" && i > 0 && is_name(s.tokens[i - 1]))
        functions_.insert(s.tokens[i - 1]);
  }

  void visit(const PtxStatement& s) {
    switch (s.kind) {
      case Kind::open:
        open_scope();
        scopes_.back().names.merge(parameters_);
        parameters_.clear();
        return;
      case Kind::close:
        if (scopes_.size() < 2) return fault(s.line, "a brace that closes nothing");
        if (scopes_.size() == 2) finish_function();
        return close_scope();
      case Kind::label:
        if (!labels_.insert({scopes_.back().number, s.tokens[0]}).second)
          fault(s.line, text("the label ", s.tokens[0], " stands twice"));
        return;
      case Kind::directive:
        return directive(s);
      case Kind::instruction:
        return instruction(s);
    }
  }

  void directive(const PtxStatement& s) {
    if (s.tokens[0] == ".version") {
      const std::string_view v = s.tokens.at(1);
      version_ = 10 * number(v) + number(v.substr(v.find('.') + 1));
    } else if (s.tokens[0] == ".target") {
      const std::string_view chip = s.tokens.at(1);
      compute_ = number(chip.substr(3));
      accelerated_ = chip.back() == 'a' || chip.back() == 'f';
    } else if (s.has(".entry") || s.has(".func")) {
      header(s);
    } else if (s.tokens[0] == ".branchtargets") {
      for (const std::string_view target : s.tokens)
        if (is_name(target)) branch(s.line, target);
    } else if (s.tokens[0] == ".reg") {
      registers(s);
    } else {
      for (const char* space : {".shared", ".global", ".const", ".param", ".local"})
        if (s.has(space)) return variable(s, space);
    }
  }

  void header(const PtxStatement& s) {
    std::vector<int> bytes;
    bool open = false;
    for (std::size_t i = 0; i < s.tokens.size(); ++i) {
      open = open || s.tokens[i] == "(";
      if (s.tokens[i] != ".param" && s.tokens[i] != ".reg") continue;
      std::size_t last = i;
      int size = 0;
      for (; last + 1 < s.tokens.size() && s.tokens[last + 1] != "," && s.tokens[last + 1] != ")";
           ++last)
        if (const int width = type_bytes(s.tokens[last + 1]); width > 0) size = width;
      if (s.tokens[last] == "]") {  // name [ count ]
        size *= number(s.tokens[last - 1]);
        last -= 3;
      }
      bytes.push_back(size);
      parameters_[s.tokens[last]] = {".param", -1, s.line, true};
    }
    if (!s.has(".entry")) return;
    ++entries_;
    if (bytes != launch_.parameter_bytes)
      fault(s.line, text("parameters of ", listed(bytes), " bytes where the launch has ",
                         listed(launch_.parameter_bytes)));
    for (std::size_t i = 0; i + 1 < s.tokens.size(); ++i)
      if ((s.tokens[i] == ".maxntid" || s.tokens[i] == ".reqntid") &&
          number(s.tokens[i + 1]) != static_cast<int>(launch_.threads))
        fault(s.line,
              text("made for ", s.tokens[i + 1], " threads, launched with ", launch_.threads));
  }

  static std::string listed(const std::vector<int>& values) {
    std::string out;
    for (const int value : values) out += text(out.empty() ? "" : " ", value);
    return "{" + out + "}";
  }

  static int type_bytes(std::string_view type) {
    if (type.size() < 3 || type[0] != '.') return 0;
    if (std::string_view("bsuf").find(type[1]) == std::string_view::npos) return 0;
    return number(type.substr(2)) / 8;
  }

  void declare(std::string_view name, const Declared& what) {
    Scope& scope = scopes_.back();
    if (!(what.count < 0 ? scope.names : scope.ranges).emplace(name, what).second)
      fault(what.line, text(name, " is declared twice"));
  }

  void registers(const PtxStatement& s) {
    for (std::size_t i = 1; i < s.tokens.size(); ++i) {
      if (!is_name(s.tokens[i])) continue;
      const bool many = i + 2 < s.tokens.size() && s.tokens[i + 1] == "<";
      declare(s.tokens[i], {".reg", many ? number(s.tokens[i + 2]) : -1, s.line, false});
    }
  }

  void variable(const PtxStatement& s, std::string_view space) {
    int bytes = 0;
    std::size_t name = 0;
    for (std::size_t i = 0; i < s.tokens.size() && s.tokens[i] != "="; ++i) {
      if (const int width = type_bytes(s.tokens[i]); width > 0) bytes = width;
      if (is_name(s.tokens[i])) name = i;
    }
    if (name == 0) return;
    int count = 1;
    if (name + 2 < s.tokens.size() && s.tokens[name + 1] == "[") count = number(s.tokens[name + 2]);
    if (space == ".shared" && count > 0 && !s.has(".extern")) static_bytes_ += bytes * count;
    if (space == ".shared" && s.has(".extern")) dynamic_ = true;
    declare(s.tokens[name], {space, -1, s.line, true});
  }

  void open_scope() { scopes_.push_back({{}, {}, opened_++}); }

  void close_scope() {
    for (const auto* declarations : {&scopes_.back().names, &scopes_.back().ranges})
      for (const auto& [name, declared] : *declarations)
        // NVRTC declares the one in every call, LLVM the other for every stack.
        if (declared.space == ".reg" && !declared.named && name != "temp_param_reg" &&
            name != "%SP")
          fault(declared.line, text("the register ", name, " is never named"));
    scopes_.pop_back();
  }

  void finish_function() {
    for (const Branch& b : branches_)
      if (std::ranges::none_of(b.scopes, [&](int s) { return labels_.contains({s, b.target}); }))
        fault(b.line, text("there is no label ", b.target));
    for (const auto& [at, r] : registers_)
      if (r.first_read > 0 && !r.written)
        fault(r.first_read, text(at.second, " is read and never written"));
    branches_.clear();
    labels_.clear();
    registers_.clear();
  }

  // The declaration of a name, or none; and where it stands.
  Declared* find(std::string_view name, int* scope_number = nullptr) {
    const std::size_t stem = name.find_last_not_of("0123456789") + 1;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (scope_number != nullptr) *scope_number = scope->number;
      if (const auto it = scope->names.find(name); it != scope->names.end()) return &it->second;
      if (stem == name.size()) continue;
      if (const auto it = scope->ranges.find(name.substr(0, stem));
          it != scope->ranges.end() && number(name.substr(stem)) < it->second.count)
        return &it->second;
    }
    return nullptr;
  }

  // What is known of a register: those of scopes of inline assembly are others than the function's.
  Register& known(std::string_view name) {
    int scope = 0;
    find(name, &scope);
    return registers_[{scope, name}];
  }

  void instruction(const PtxStatement& s) {
    Tokens tokens = s.tokens;
    if (tokens[0] == "@") {
      const std::size_t predicate = tokens.at(1) == "!" ? 2 : 1;
      name_register(tokens.at(predicate), s.line, false);
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(predicate) + 1);
    }
    if (tokens.empty()) return;
    const std::string_view opcode = tokens[0];
    check_features(opcode, s.line);
    if (starts_with_any(opcode, {"bra", "brx"})) {
      branch(s.line, tokens.back());
      const auto before = [&](const auto& in) {
        return labels_.contains({in.number, tokens.back()});
      };
      if (s.tokens[0] == "bra" || s.tokens[0] == "bra.uni")
        if (compute_ / 10 == 12 && std::ranges::any_of(scopes_, before))
          fault(s.line, text("an unconditional branch back to ", tokens.back()));
      if (opcode.starts_with("brx")) name_register(tokens.at(1), s.line, false);
      return;
    }
    const bool call = opcode.starts_with("call");
    const bool writes = !call && has_destination(opcode) && tokens.size() > 1 && tokens[1] != "[";
    // The first operand is what is written; a '|' joins two of them, braces several.
    std::size_t end = 1;
    for (int depth = 0; end < tokens.size() && (tokens[end] != "," || depth > 0); ++end) {
      if (tokens[end] == "{") ++depth;
      if (tokens[end] == "}") --depth;
    }
    Tokens read;
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      if (!is_name(tokens[i]) || tokens[i] == "_") continue;
      const bool written = writes && i < end;
      if (!written) read.push_back(tokens[i]);
      if (call && functions_.contains(tokens[i])) continue;
      name_register(tokens[i], s.line, written);
      if (call) name_register(tokens[i], s.line, true);
    }
    if (writes) track(opcode, tokens[1], read, end == 2);
    check_space(opcode, tokens, s.line);
  }

  void branch(int line, std::string_view target) {
    branches_.push_back({line, target, {}});
    for (const Scope& scope : scopes_) branches_.back().scopes.push_back(scope.number);
  }

  static bool has_destination(std::string_view opcode) {
    return !starts_with_any(opcode, {"st.", "red.", "bar.", "barrier.", "nanosleep", "ret", "exit",
                                     "trap", "membar", "fence", "prefetch", "griddepcontrol"});
  }

  void name_register(std::string_view name, int line, bool written) {
    if (is_special_register(name)) return;
    const std::string_view base = name.substr(0, name.find('.', 1));
    Declared* declared = find(base);
    if (declared == nullptr) {
      if (!functions_.contains(base)) fault(line, text(base, " is not declared"));
      return;
    }
    declared->named = true;
    if (declared->space != ".reg") return;
    Register& r = known(base);
    if (written) r.written = true;
    if (!written && r.first_read == 0) r.first_read = line;
  }

  // The space of an address that an instruction makes, where that is plain.
  void track(std::string_view opcode, std::string_view to, const Tokens& read, bool single) {
    const Declared* declared = find(to);
    if (declared == nullptr || declared->space != ".reg") return;
    std::string_view space;
    if (single && opcode.starts_with("cvta.to.")) {
      space = opcode.substr(7, opcode.find('.', 8) - 7);
    } else if (single && opcode.starts_with("cvta.")) {
      // Global memory has the same addresses in both.
      space = opcode.starts_with("cvta.global") ? ".global" : "generic";
    } else if (single && starts_with_any(opcode, {"mov.", "add.", "sub."})) {
      for (const std::string_view name : read) {
        const Declared* from = find(name.substr(0, name.find('.', 1)));
        if (from == nullptr) continue;
        std::string_view its = from->space;
        if (its == ".reg") {
          const Register& r = known(name);
          its = r.spaces_differ ? "" : r.space;
        }
        if (!its.empty()) space = its;
      }
    }
    Register& r = known(to);
    if (space.empty() || (!r.space.empty() && r.space != space)) r.spaces_differ = true;
    r.space = space;
  }

  void check_space(std::string_view opcode, const Tokens& tokens, int line) {
    if (!starts_with_any(opcode, {"ld.", "ldu.", "st.", "atom.", "red."})) return;
    std::string_view wanted = "generic";
    for (const char* space : {".shared", ".global", ".const", ".param", ".local"})
      if (opcode.find(space) != std::string_view::npos) wanted = space;
    const auto bracket = std::ranges::find(tokens, "[");
    if (bracket == tokens.end() || bracket + 1 == tokens.end()) return;
    const std::string_view base = *(bracket + 1);
    const Declared* declared = is_name(base) ? find(base) : nullptr;
    if (declared == nullptr) return;
    std::string_view space = declared->space;
    if (space == ".reg") {
      const Register& r = known(base);
      space = r.spaces_differ ? "" : r.space;
    }
    if (!space.empty() && space != wanted)
      fault(line, text(opcode, " of an address in ", space[0] == '.' ? space.substr(1) : space,
                       " space"));
  }

  void check_features(std::string_view opcode, int line) {
    for (const PtxFeature& f : ptx_features()) {
      if (opcode.find(f.part) == std::string_view::npos) continue;
      if (version_ < f.version)
        fault(line, text(opcode, " needs PTX ", f.version / 10, ".", f.version % 10));
      if (compute_ < f.compute || (f.accelerated && !accelerated_))
        fault(line, text(opcode, " needs sm_", f.compute, f.accelerated ? "a" : ""));
    }
  }

  const PtxLaunch& launch_;
  std::string faults_;
  std::set<std::string_view> functions_;
  std::set<std::pair<int, std::string_view>> labels_;  // by scope
  std::vector<Scope> scopes_;
  std::map<std::string_view, Declared> parameters_;  // of the function whose header was read last
  std::vector<Branch> branches_;
  std::map<std::pair<int, std::string_view>, Register> registers_;
  int version_ = 0, compute_ = 0, static_bytes_ = 0, entries_ = 0, opened_ = 0;
  bool accelerated_ = false, dynamic_ = false;
};

}  // namespace

std::string ptx_faults(std::string_view text, const PtxLaunch& launch) {
  return Lint(launch).run(text);
}

std::string ptx_faults(const Ptx& ptx, const KernelKey& key) {
  const std::vector<int> pointers(row(key.type).params(key).size(), 8);
  return ptx_faults(ptx.text, {pointers, ptx.geometry.threads, ptx.geometry.shared_bytes});
}

}  // namespace lathe::testing
