// Owns the setting of an environment variable for the length of a test.
#pragma once

#include <cstdlib>
#include <string>

namespace lathe::testing {

class SetVariable {
 public:
  // Null: unset.
  SetVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~SetVariable() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace lathe::testing
