// Owns where the sections of a P64 container are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lathe/codegen/result.h"
#include "plan/p64_format.h"

namespace lathe::p64 {

struct Section {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // == begin: there is none
};

struct Sections {
  Header header = {};
  Hparams hparams = {};
  Section schedule;
  Section tensors;
  Section strings;
  Section manifold;
  std::optional<Section> metadata;  // the entries alone
  std::uint64_t metadata_count = 0;
  Section tokenizer;
  Section checksum;
  std::uint64_t blobs = 0;  // where tensors may begin
};

// Checked: in order, none over another, all within the file.
Result<Sections> read_sections(std::span<const std::byte> bytes);

}  // namespace lathe::p64
