// Owns the child process, its files and the reading of its answers.
#include "examples/dump_ptx/assemble.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace lathe::dump_ptx {

namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<fs::path> usual_places() {
  std::vector<fs::path> places = {LATHE_PTXAS_DEFAULT};
  for (const Variable variable : {Variable::cuda_home, Variable::cuda_path}) {
    if (const auto toolkit = environment_value(variable))
      places.push_back(fs::path(*toolkit) / "bin" / "ptxas");
  }
  places.push_back("/usr/local/cuda/bin/ptxas");
  const std::string path = environment_value(Variable::path).value_or("");
  std::string_view folders = path;
  while (!folders.empty()) {
    const std::size_t colon = folders.find(':');
    places.push_back(fs::path(folders.substr(0, colon)) / "ptxas");
    folders.remove_prefix(colon == std::string_view::npos ? folders.size() : colon + 1);
  }
  return places;
}

// A folder of its own for the assembler's files, gone afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code ignored;
    std::string pattern = (fs::temp_directory_path(ignored) / "dump_ptx.XXXXXX").string();
    if (::mkdtemp(pattern.data())) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  bool good() const { return !path_.empty(); }
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Runs a program with both its outputs in a file. Its exit status, or -1.
int run(std::vector<std::string> words, const std::string& output) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// The number in front of a phrase such as " bytes smem"; 0 if the assembler doesn't mention it.
int number_before(std::string_view log, std::string_view phrase) {
  const std::size_t end = log.find(phrase);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
  int number = 0;
  std::from_chars(log.data() + begin, log.data() + end, number);
  return number;
}

// Machine code in a cubin, which is an ELF file with a section ".text.NAME" for each kernel.
std::int64_t code_bytes(std::string_view cubin) {
  const auto read = [&](std::uint64_t at, auto& value) {
    if (at > cubin.size() || cubin.size() - at < sizeof value) return false;
    std::memcpy(&value, cubin.data() + at, sizeof value);
    return true;
  };
  Elf64_Ehdr header{};
  Elf64_Shdr names{};
  if (!read(0, header)) return 0;
  if (!read(header.e_shoff + std::uint64_t{header.e_shstrndx} * sizeof names, names)) return 0;
  std::int64_t bytes = 0;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section{};
    if (!read(header.e_shoff + i * sizeof section, section)) break;
    const std::uint64_t name = names.sh_offset + section.sh_name;
    if (name < cubin.size() && cubin.substr(name).starts_with(".text."))
      bytes += static_cast<std::int64_t>(section.sh_size);
  }
  return bytes;
}

}  // namespace

Result<std::string> find_ptxas(const std::string& wanted) {
  if (!wanted.empty()) {
    if (is_program(wanted)) return wanted;
    return Error{Code::not_found, fmt::format("'{}' is not a program that can be run", wanted), {}};
  }
  for (const fs::path& place : usual_places())
    if (is_program(place)) return place.string();
  return Error{Code::not_found, "ptxas was found neither in a CUDA toolkit nor on PATH", {}}.with(
      "hint", "give its place with --ptxas, or set CUDA_HOME");
}

Result<Resources> assemble(const Ptx& ptx, const std::string& ptxas) {
  const TemporaryFolder folder;
  if (!folder.good())
    return Error{Code::io, "no folder for temporary files could be made", {}}.with(
        "hint", "TMPDIR says where it is to be");
  const std::string input = folder.file("kernel.ptx");
  const std::string output = folder.file("kernel.cubin");
  const std::string log = folder.file("log");
  if (!(std::ofstream(input, std::ios::binary) << ptx.text << std::flush))
    return Error{Code::io, fmt::format("'{}' could not be written", input), {}};

  const auto start = std::chrono::steady_clock::now();
  const int status = run({ptxas, "-arch=" + ptx.target.name(), "-v", input, "-o", output}, log);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  const std::string said = contents(log);
  if (status != 0)
    return Error{Code::compile, fmt::format("ptxas refused {}", ptx.entry), {}}
        .with("target", ptx.target.name())
        .with("route", route_name(ptx.route))
        .with("ptxas", ptxas)
        .with("log", said.empty() ? fmt::format("none; exit status {}", status) : said);
  return Resources{.registers = number_before(said, " registers"),
                   .stack_bytes = number_before(said, " bytes stack frame"),
                   .spill_store_bytes = number_before(said, " bytes spill stores"),
                   .spill_load_bytes = number_before(said, " bytes spill loads"),
                   .shared_bytes = number_before(said, " bytes smem"),
                   .code_bytes = code_bytes(contents(output)),
                   .milliseconds = took.count()};
}

}  // namespace lathe::dump_ptx
