// Owns the texts of error codes.
#include "lathe/codegen/result.h"

namespace lathe {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::unsupported:
      return "unsupported";
    case Code::not_found:
      return "not found";
    case Code::corrupt_file:
      return "corrupt file";
    case Code::io:
      return "input/output error";
    case Code::no_driver:
      return "no driver";
    case Code::driver:
      return "driver error";
    case Code::compile:
      return "compile error";
    case Code::out_of_memory:
      return "out of memory";
    case Code::out_of_range:
      return "out of range";
    case Code::not_eligible:
      return "not eligible";
    case Code::internal:
      return "internal error";
    case Code::cancelled:
      return "cancelled";
  }
  return "unknown code";
}

Error Error::with(std::string name, std::string value) && {
  details.push_back({std::move(name), std::move(value)});
  return std::move(*this);
}

std::string Error::text() const {
  std::string out = message;
  for (const Detail& detail : details) out += "\n  " + detail.name + ": " + detail.value;
  return out;
}

}  // namespace lathe
