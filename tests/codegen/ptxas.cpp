// Owns the running of ptxas in tests and the reading of what it says.
#include "tests/codegen/ptxas.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/support/compilers.h"

namespace lathe::testing {
namespace {

namespace fs = std::filesystem;

// Where the build says, where the toolkit installs it, or on the path.
std::string find_ptxas() {
  std::vector<std::string> candidates = {LATHE_TEST_PTXAS, "/usr/local/cuda/bin/ptxas"};
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');)
    candidates.push_back(folder + "/ptxas");
  for (const std::string& candidate : candidates)
    if (!candidate.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  return {};
}

PtxasOutput run(const std::string& command) {
  PtxasOutput out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return out;
  std::array<char, 4096> buffer;
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    out.text.append(buffer.data(), count);
  out.status = pclose(pipe);
  return out;
}

std::string version_of(const std::string& program) {
  const std::string text = run("'" + program + "' --version").text;
  const std::size_t at = text.find("release ");
  return at == std::string::npos ? "ptxas"
                                 : "ptxas " + text.substr(at + 8, text.find(',', at) - at - 8);
}

}  // namespace

int PtxasOutput::number_before(const std::string& words) const {
  const std::size_t at = text.find(words);
  if (at == std::string::npos) return -1;
  std::size_t first = at;
  while (first > 0 && std::isdigit(static_cast<unsigned char>(text[first - 1]))) --first;
  return first == at ? -1 : std::stoi(text.substr(first, at - first));
}

int PtxasOutput::spills() const {
  int most = 0;
  for (const char* what :
       {" bytes stack frame", " bytes spill stores", " bytes spill loads", " bytes lmem"})
    most = std::max(most, number_before(what));
  return most;
}

Ptxas::Ptxas()
    : program_(find_ptxas()),
      folder_(fs::temp_directory_path() / ("lathe_ptxas_" + std::to_string(getpid()))) {
  fs::create_directories(folder_);
  if (!program_.empty()) version_ = version_of(program_);
  versions_ = "# " + version_;
  for (Route route : {Route::nvrtc, Route::llvm})
    if (const auto version = compilers().version(route)) versions_ += ", " + *version;
}

Ptxas::~Ptxas() {
  fs::remove_all(folder_);
}

PtxasOutput Ptxas::assemble(const Ptx& ptx, const std::string& name) const {
  const fs::path source = folder_ / (name + ".ptx");
  std::ofstream(source) << ptx.text;
  PtxasOutput out = run("'" + program_ + "' -v -arch=" + ptx.target.name() + " '" +
                        source.string() + "' -o '" + (folder_ / (name + ".cubin")).string() + "'");
  fs::remove(source);
  return out;
}

Ptxas& ptxas() {
  static Ptxas shared;
  return shared;
}

}  // namespace lathe::testing
