// Owns the weights that an engine around a session has on the device already.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/codegen/format.h"
#include "lathe/codegen/tile.h"
#include "lathe/plan/gguf.h"
#include "lathe/runtime/session.h"

namespace lathe::testing {

// some_blocks: of every other weight.
enum class Has : std::uint8_t { blocks, tiles, some_blocks };

class EngineWeights {
 public:
  // Copies content to memory of the device, 256 bytes aligned, and says where.
  using Place = std::function<std::uint64_t(std::span<const std::byte> content)>;

  EngineWeights(std::shared_ptr<const GgufFile> file, Has has, Place place)
      : file_(std::move(file)), has_(has), place_(std::move(place)) {}

  DeviceWeights hook() {
    return [this](std::string_view tensor, Layout layout, std::int64_t bytes) {
      return find(std::string(tensor), layout, bytes);
    };
  }

 private:
  std::uint64_t find(const std::string& name, Layout layout, std::int64_t bytes) {
    if (layout == Layout::tiles && has_ != Has::tiles) return 0;
    if (has_ == Has::some_blocks && ++asked_ % 2 == 0) return 0;
    const GgufTensor& tensor = *file_->tensor(name);
    const auto blocks = file_->data(tensor);
    std::vector<std::byte> content(blocks.begin(), blocks.end());
    if (layout == Layout::tiles) {
      const Format format = format_by_ggml_type(tensor.ggml_type).value();
      const TileShape shape = tile_shape(format, int(tensor.rows()), int(tensor.k())).value();
      content.resize(std::size_t(shape.bytes()));
      blocks_to_tiles(shape, blocks.data(), content.data());
    }
    EXPECT_EQ(std::int64_t(content.size()), bytes) << name;
    EXPECT_TRUE(placed_.insert(name).second) << name << " was asked for again";
    return place_(content);
  }

  std::shared_ptr<const GgufFile> file_;
  const Has has_;
  Place place_;
  std::set<std::string> placed_;
  int asked_ = 0;
};

}  // namespace lathe::testing
