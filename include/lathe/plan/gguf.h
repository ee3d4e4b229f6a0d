// Owns the reading of a model file, GGUF (versions 2 and 3) or P64 (version 4): a checked,
// read-only view of its metadata and tensors over a memory map. Which of the two it is, its first
// bytes say; a P64 container shows what the GGUF file of the same model would.
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
  // 0 when ggml_type is not one of formats(), in a container that does not say.
  std::int64_t bytes = 0;

  std::int64_t k() const { return dims.empty() ? 1 : dims[0]; }
  std::int64_t rows() const;
};

using GgufArray = std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;
// Integers of any width are held as int64; uint64 is only for those above its range.
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string, GgufArray>;

enum class Container : std::uint8_t { gguf, p64 };
const char* container_name(Container container);  // "GGUF", "P64"

// How much of a P64 container is held to its checksums when it is opened; later by convert_model
// alone. All offsets, sizes and names are checked always. A GGUF file has no checksums.
enum class Integrity : std::uint8_t {
  metadata,   // all but the tensors' bytes
  full,       // all: reads the whole file
  structure,  // no checksums
};
Result<Integrity> integrity_by_name(std::string_view name);

// What a P64 container that is written holds in place of weights. All but the first lose precision.
enum class P64Weights : std::uint8_t {
  as_stored,    // the same bytes
  q4_k_soa,     // for q4_k matrices the same nibbles with f16 scales, in 11 % more memory
  ternary_ffn,  // for the matrices of the FFN -1, 0 or 1 times one scale
};
Result<P64Weights> p64_weights_by_name(std::string_view name);

// What a file is, apart from the model in it.
struct FileFacts {
  Container container = Container::gguf;
  int version = 0;
  std::int64_t bytes = 0;
  // Where tensors begin; in a P64 container 0, for its offsets are the file's.
  std::int64_t data_offset = 0;
  // The metadata as a GGUF file has them: so many entries, one after the other.
  std::span<const std::byte> metadata;
  std::uint64_t metadata_count = 0;
  // P64: the tensors in the order of the file that the container was made from.
  std::span<const std::uint32_t> source_order;
  // P64: the CRC-32C that the container has for each tensor, in the order of tensors().
  std::span<const std::uint32_t> checksums;
};

class GgufFile {
 public:
  // Maps and checks the file. The map lives as long as the object.
  static Result<std::shared_ptr<const GgufFile>> open(const std::string& path,
                                                      Integrity integrity = Integrity::metadata);
  // Adopts a mapping: the same over bytes that stay the caller's, who keeps them alive and as they
  // are. They may begin at any address.
  static Result<std::shared_ptr<const GgufFile>> from_bytes(
      std::span<const std::byte> bytes, std::string name,
      Integrity integrity = Integrity::metadata);
  virtual ~GgufFile() = default;

  virtual const FileFacts& facts() const;

  virtual const std::string& path() const = 0;
  virtual std::span<const GgufTensor> tensors() const = 0;
  virtual const GgufTensor* tensor(std::string_view name) const = 0;
  // The tensor's bytes as stored; empty where GgufTensor::bytes is 0. The file must not shrink
  // while it is mapped.
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
