// Owns the running of ptxas in tests and the reading of what it says.
#pragma once

#include <filesystem>
#include <string>

#include "lathe/codegen/emit.h"

namespace lathe::testing {

struct PtxasOutput {
  int status = -1;
  std::string text;

  int registers() const { return number_before(" registers"); }
  // The largest of stack, spill stores and spill loads, in bytes.
  int spills() const;
  // The number before `words`, -1 without it.
  int number_before(const std::string& words) const;
};

class Ptxas {
 public:
  Ptxas();
  ~Ptxas();
  Ptxas(const Ptxas&) = delete;
  Ptxas& operator=(const Ptxas&) = delete;

  bool found() const { return !program_.empty(); }
  const std::string& version() const { return version_; }
  // Of the assembler and of every compiler that is available: the first line of the budgets.
  const std::string& versions() const { return versions_; }

  PtxasOutput assemble(const Ptx& ptx, const std::string& name) const;

 private:
  std::string program_;
  std::filesystem::path folder_;
  std::string version_, versions_;
};

// The one that a test executable uses.
Ptxas& ptxas();

}  // namespace lathe::testing
