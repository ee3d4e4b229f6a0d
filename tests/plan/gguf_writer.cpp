// Owns writing small GGUF files in memory for tests.
#include "tests/plan/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lathe::testing {
namespace {

class ImageBuilder {
 public:
  template <typename T>
  void number(std::string name, T value) {
    image_.fields.push_back({std::move(name), image_.bytes.size(), sizeof(T)});
    bytes(GgufWriter::raw(value));
  }

  void text(std::string name, std::string_view text) {
    number(name + " length", static_cast<std::uint64_t>(text.size()));
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    image_.bytes.insert(image_.bytes.end(), data, data + text.size());
  }

  void bytes(std::span<const std::byte> bytes) {
    image_.bytes.insert(image_.bytes.end(), bytes.begin(), bytes.end());
  }

  void align(std::int64_t alignment) {
    while (static_cast<std::int64_t>(image_.bytes.size()) % alignment != 0) {
      image_.bytes.push_back(std::byte{0});
    }
  }

  GgufImage take() && { return std::move(image_); }

 private:
  GgufImage image_;
};

}  // namespace

const GgufField& GgufImage::field(std::string_view name) const {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const GgufField& field) { return field.name == name; });
  EXPECT_NE(found, fields.end()) << "no field " << name;
  return *found;
}

void GgufImage::set(std::string_view name, std::uint64_t value) {
  const GgufField& place = field(name);
  std::memcpy(bytes.data() + place.offset, &value, place.bytes);
}

std::vector<std::byte> GgufWriter::raw_string(std::string_view text) {
  const std::uint64_t length = text.size();
  std::vector<std::byte> bytes(sizeof length + text.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(bytes.data()) + sizeof length);
  return bytes;
}

GgufImage GgufWriter::image() const {
  ImageBuilder out;
  out.number("magic", std::uint32_t{0x46554747});
  out.number("version", version);
  out.number("tensor count", static_cast<std::uint64_t>(tensors_.size()));
  out.number("metadata count", static_cast<std::uint64_t>(values_.size()));
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Value& value = values_[i];
    const std::string which = "key " + std::to_string(i);
    out.text(which, value.key);
    out.number(which + " type", static_cast<std::uint32_t>(value.type));
    if (value.type == GgufType::array && value.body.size() >= 12) {
      std::uint32_t element = 0;
      std::uint64_t count = 0;
      std::memcpy(&element, value.body.data(), sizeof element);
      std::memcpy(&count, value.body.data() + sizeof element, sizeof count);
      out.number(which + " element type", element);
      out.number(which + " element count", count);
      out.bytes(std::span(value.body).subspan(12));
    } else if (value.type == GgufType::string && value.body.size() >= 8) {
      std::uint64_t length = 0;
      std::memcpy(&length, value.body.data(), sizeof length);
      out.number(which + " string length", length);
      out.bytes(std::span(value.body).subspan(8));
    } else {
      out.bytes(value.body);
    }
  }
  const auto aligned = [this](std::uint64_t bytes) {
    const auto step = static_cast<std::uint64_t>(alignment);
    return (bytes + step - 1) / step * step;
  };
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const std::string which = "tensor " + std::to_string(i);
    out.text(which, tensor.name);
    out.number(which + " dims", static_cast<std::uint32_t>(tensor.dims.size()));
    for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
      out.number(which + " dim " + std::to_string(d), tensor.dims[d]);
    }
    out.number(which + " type", tensor.type);
    out.number(which + " offset", offset);
    offset += aligned(tensor.data.size());
  }
  for (const Tensor& tensor : tensors_) {
    out.align(alignment);
    out.bytes(tensor.data);
  }
  return std::move(out).take();
}

}  // namespace lathe::testing
