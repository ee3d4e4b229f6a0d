// Owns the reading of a GGUF file (versions 2 and 3): a checked, read-only view of its metadata
// and tensors over a memory map.
//
// Every count, offset, type, size and string is checked against the file's length before it is
// used; a hostile file yields one Error and touches nothing outside the map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lathe/codegen/format.h"
#include "lathe/codegen/result.h"

namespace lathe {

struct GgufTensor {
  std::string name;
  std::uint32_t ggml_type = 0;
  std::vector<std::int64_t> dims;  // dims[0] is the row length k, as GGUF stores it
  std::int64_t offset = 0;         // from the start of the file
  std::int64_t bytes = 0;          // 0 when ggml_type is not one of formats()

  std::int64_t k() const { return dims.empty() ? 1 : dims[0]; }
  std::int64_t rows() const;
};

using GgufArray = std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;
// Integers of any width are held as int64; uint64 is only for those above its range.
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string, GgufArray>;

class GgufFile {
 public:
  // Maps and checks the file. The map lives as long as the object.
  static Result<std::shared_ptr<const GgufFile>> open(const std::string& path);
  // The same over bytes the caller keeps alive (tests, fuzzers, adopted mappings).
  static Result<std::shared_ptr<const GgufFile>> from_bytes(std::span<const std::byte> bytes,
                                                            std::string name);
  virtual ~GgufFile() = default;

  virtual const std::string& path() const = 0;
  virtual std::span<const GgufTensor> tensors() const = 0;
  virtual const GgufTensor* tensor(std::string_view name) const = 0;
  // The tensor's blocks as stored; empty when its type is not one of formats(). The file must not
  // shrink while it is mapped.
  virtual std::span<const std::byte> data(const GgufTensor& tensor) const = 0;

  virtual const GgufValue* value(std::string_view key) const = 0;
  // Typed look-ups: the error names the key and what it holds instead (not_found when absent).
  // Integers of any width convert when they fit, and to reals.
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> real(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;
  // nullptr when absent or of another element type.
  const std::vector<std::string>* strings(std::string_view key) const;
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* reals(std::string_view key) const;
  const std::vector<bool>* booleans(std::string_view key) const;
};

}  // namespace lathe
