// Owns the path of one kernel through emission, assembly and output, and the count of all.
#include "examples/dump_ptx/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "examples/command_line.h"
#include "examples/dump_ptx/assemble.h"

namespace lathe::dump_ptx {

namespace {

struct Text {
  std::string contents;
  std::string extension;
  std::string facts;  // for stderr
};

class Dump {
 public:
  Dump(const Options& options, const Compilers& compilers)
      : options_(options), compilers_(compilers) {}

  Result<void> prepare() {
    if (options_.assemble) {
      LATHE_ASSIGN(ptxas_, find_ptxas(options_.ptxas));
    }
    if (options_.out.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(options_.out, error);
    if (!error) return {};
    return Error{
        Code::io,
        fmt::format("the folder '{}' could not be made: {}", options_.out, error.message()),
        {}};
  }

  // A line about the kernel for stderr.
  Result<std::string> one(const KernelKey& key) const {
    if (options_.source) return write(key.text(), source(cuda_source(key)));
    return write(key.text(), ptx(emit_by_routes(key)));
  }

  Result<std::string> one(const Program& program) const {
    if (options_.source) return write("persistent", source(cuda_source(program)));
    return write("persistent", ptx(emit_program(program, options_.target, compilers_)));
  }

 private:
  Result<std::string> write(const std::string& name, Result<Text> made) const {
    LATHE_ASSIGN(const Text text, std::move(made));
    if (options_.out.empty()) {
      LATHE_TRY(command_line::print(text.contents));
    } else {
      LATHE_TRY(write_file(name + text.extension, text.contents));
    }
    return name + ": " + text.facts;
  }

  static Result<Text> source(Result<std::string> made) {
    LATHE_ASSIGN(std::string text, std::move(made));
    return Text{std::move(text), ".cu", "CUDA C++ source"};
  }

  Result<Text> ptx(Result<Ptx> emitted) const {
    LATHE_ASSIGN(Ptx made, std::move(emitted));
    std::string facts = fmt::format("{} by {} ({}) in {:.1f} ms", made.target.name(),
                                    route_name(made.route), made.compiler, made.milliseconds);
    if (options_.assemble) {
      LATHE_ASSIGN(const Resources used, assemble(made, ptxas_));
      facts += fmt::format(
          "; {} registers, {} bytes of stack, {} bytes of spill stores, {} of spill loads, {} + {} "
          "bytes of shared memory (static + dynamic), {} bytes of code; assembled in {:.0f} ms",
          used.registers, used.stack_bytes, used.spill_store_bytes, used.spill_load_bytes,
          used.shared_bytes, made.geometry.shared_bytes, used.code_bytes, used.milliseconds);
    }
    return Text{std::move(made.text), ".ptx", std::move(facts)};
  }

  // With one route its own refusal is clearer than a list of one.
  Result<Ptx> emit_by_routes(const KernelKey& key) const {
    if (options_.routes.size() == 1)
      return emit(key, options_.target, options_.routes.front(), compilers_);
    return emit_first(key, options_.target, options_.routes, compilers_);
  }

  Result<void> write_file(const std::string& name, const std::string& contents) const {
    const std::string path = (std::filesystem::path(options_.out) / name).string();
    std::FILE* file = std::fopen(path.c_str(), "wb");
    bool good = file && std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
    if (file && std::fclose(file) != 0) good = false;
    if (good) return {};
    return Error{Code::io, fmt::format("cannot write '{}': {}", path, std::strerror(errno)), {}};
  }

  const Options& options_;
  const Compilers& compilers_;
  std::string ptxas_;
};

// Why this kernel is left out of a list, if the only thing wrong is that the text route has no
// template for it or that the target lacks its instructions.
std::optional<std::string> why_skipped(const KernelKey& key, const Options& options) {
  if (std::ranges::none_of(options.routes,
                           [&](Route route) { return bool(route_covers(key, route)); }))
    return "no PTX template covers it";
  if (const auto covered = target_covers(key, options.target); !covered)
    return covered.error().message;
  return std::nullopt;
}

}  // namespace

int dump(std::span<const KernelKey> keys, const Options& options, const Compilers& compilers) {
  Dump dump(options, compilers);
  if (const Result<void> ready = dump.prepare(); !ready) {
    command_line::print_error("dump_ptx", ready.error());
    return command_line::kFailure;
  }
  int made = 0, skipped = 0, failed = 0;
  for (const KernelKey& key : keys) {
    if (const auto why = why_skipped(key, options); why && keys.size() > 1 && !options.source) {
      command_line::say(fmt::format("{}: skipped, {}\n", key.text(), *why));
      ++skipped;
      continue;
    }
    const Result<std::string> line = dump.one(key);
    if (line) {
      command_line::say(fmt::format("{}\n", *line));
      ++made;
    } else {
      command_line::print_error("dump_ptx", line.error());
      ++failed;
    }
  }
  if (keys.size() > 1)
    command_line::say(fmt::format("{} made, {} skipped, {} failed{}\n", made, skipped, failed,
                                  options.out.empty() ? "" : "; in " + options.out));
  return failed || !made ? command_line::kFailure : command_line::kSuccess;
}

int dump(const Program& program, const Options& options, const Compilers& compilers) {
  Dump dump(options, compilers);
  Result<void> ready = dump.prepare();
  const Result<std::string> line =
      ready ? dump.one(program) : Result<std::string>(std::move(ready).error());
  if (!line) {
    command_line::print_error("dump_ptx", line.error());
    return command_line::kFailure;
  }
  command_line::say(fmt::format("{}\n", *line));
  return command_line::kSuccess;
}

}  // namespace lathe::dump_ptx
