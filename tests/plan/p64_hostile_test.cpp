// Owns the tests of damaged and hostile P64 containers: each yields one error or is harmless, and
// nothing outside the bytes is touched (run under AddressSanitizer to prove the latter).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <random>

#include "lathe/plan/gguf.h"
#include "lathe/plan/model_report.h"
#include "lathe/plan/plan.h"
#include "tests/plan/p64_image.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using p64::Header;
using p64::Hparams;
using p64::TensorEntry;

using Bytes = std::vector<std::byte>;

const Bytes& sample() {
  static const Bytes bytes = [] {
    testing::TinyModel model = testing::tiny_llama();
    model.weights = Format::q8_0;
    model.vocab = 32;
    testing::GgufWriter writer = testing::tiny_model_writer(model);
    writer.strings("tokenizer.ggml.merges", {"a b"});
    return testing::p64_image(writer.image().bytes, 256);
  }();
  return bytes;
}

// Reads from an allocation of exactly the file's size, so that one byte too far is seen.
Result<void> read(std::span<const std::byte> bytes, Integrity integrity = Integrity::metadata) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  LATHE_ASSIGN(const auto file,
               GgufFile::from_bytes({copy.get(), bytes.size()}, "hostile", integrity));
  std::size_t sum = 0;
  for (const GgufTensor& tensor : file->tensors())
    for (const std::byte byte : file->data(tensor)) sum += std::to_integer<std::size_t>(byte);
  std::size_t all = 0;
  for (const std::byte byte : bytes) all += std::to_integer<std::size_t>(byte);
  EXPECT_LE(sum, all) << "tensors share bytes";
  const auto report = report_model(*file);
  if (!report) {
    EXPECT_FALSE(report.error().message.empty());
  }
  return {};
}

void expect_refused(std::span<const std::byte> bytes, std::string_view part,
                    Code code = Code::corrupt_file, Integrity integrity = Integrity::metadata) {
  const auto done = read(bytes, integrity);
  ASSERT_FALSE(done) << "accepted, but should name: " << part;
  EXPECT_EQ(done.error().code, code) << done.error().message;
  EXPECT_NE(done.error().message.find(part), std::string::npos)
      << "got: " << done.error().message << "\nwanted: " << part;
}

// The sample with one field of the header another, and checksums that say so.
template <typename T>
Bytes with(std::size_t offset, T value) {
  Bytes bytes = sample();
  testing::set_number(bytes, offset, value);
  testing::seal(bytes);
  return bytes;
}

std::size_t entry(std::string_view tensor) {
  return testing::entry_of(sample(), tensor);
}

TEST(HostileP64, TheSampleItselfIsRead) {
  for (const Integrity integrity : {Integrity::full, Integrity::metadata, Integrity::structure}) {
    const auto done = read(sample(), integrity);
    EXPECT_TRUE(done) << done.error().text();
  }
}

TEST(HostileP64, EveryTruncationIsRefused) {
  const Bytes& bytes = sample();
  const auto header = testing::number_at<Header>(bytes, 0);
  const std::size_t end =
      testing::number_at<TensorEntry>(bytes, header.tensor_table + 64 * (header.tensor_count - 1))
          .blob;
  for (std::size_t length = 4; length <= end; length += length < 8192 ? 1 : 97) {
    const auto done = read(std::span(bytes).first(length), Integrity::structure);
    ASSERT_FALSE(done) << "accepted at " << length << " of " << bytes.size() << " bytes";
    EXPECT_EQ(done.error().code, Code::corrupt_file);
    EXPECT_FALSE(done.error().message.empty());
  }
}

TEST(HostileP64, TheHeaderIsHeldToTheFormat) {
  expect_refused(with(4, std::uint16_t{3}), "version at byte 4 is 3", Code::unsupported);
  expect_refused(with(4, std::uint16_t{0x0400}), "big-endian", Code::unsupported);
  expect_refused(with(6, std::uint16_t{0x70}), "little-endian", Code::unsupported);
  expect_refused(with(6, std::uint16_t{0x8071}), "0x8000 of them", Code::unsupported);
  for (const std::uint32_t page : {0u, 1u, 128u, 257u, 0x80000000u, 0xffffffffu})
    expect_refused(with(40, page), "page size at byte 40");
}

TEST(HostileP64, SectionsOverOthersAreRefused) {
  const auto header = testing::number_at<Header>(sample(), 0);
  expect_refused(with(offsetof(Header, hparams), 0u), "hyperparameters begin at byte 0");
  expect_refused(with(offsetof(Header, tensor_table), 64u), "tensor table begin at byte 64");
  expect_refused(with(offsetof(Header, string_table), header.tensor_table), "names begin at");
  expect_refused(with(offsetof(Header, manifold), header.string_table - 64), "manifold table");
  expect_refused(with(offsetof(Header, manifold), header.manifold + 32), "no multiple of 64");
  expect_refused(with(offsetof(Header, tokenizer), header.manifold), "tokenizer begin at");
  expect_refused(with(offsetof(Header, checksum), header.tokenizer - 64), "checksums begin at");
  expect_refused(with(offsetof(Header, role_table), header.tensor_table), "layer schedule");
  expect_refused(with(offsetof(Header, role_table), 0u), "layer schedule");
}

TEST(HostileP64, OffsetsAndCountsBeyondTheFileAreRefused) {
  constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t offset = 8; offset < 40; offset += 4) {
    const auto done = read(with(offset, kMax), Integrity::structure);
    ASSERT_FALSE(done) << "byte " << offset;
    EXPECT_FALSE(done.error().message.empty());
  }
  const auto header = testing::number_at<Header>(sample(), 0);
  expect_refused(with(header.hparams, kMax), "the manifold table end at byte 274877");
  expect_refused(with(header.hparams, kMax - 1), "the manifold table end at byte 274877");
  for (const std::size_t field : {offsetof(TensorEntry, blob), offsetof(TensorEntry, blob_bytes)}) {
    for (const std::uint32_t value : {kMax, kMax - 255, 0x7fffffffu, 0x80000000u}) {
      const auto done =
          read(with(entry("blk.1.ffn_down.weight") + field, value), Integrity::structure);
      ASSERT_FALSE(done);
    }
  }
  expect_refused(with(entry("output_norm.weight") + offsetof(TensorEntry, blob), 0xffffff00u),
                 "'output_norm.weight' ends at byte 4294967");
}

TEST(HostileP64, TensorsAreHeldToTheirPlaceAndShape) {
  const std::size_t at = entry("blk.0.ffn_up.weight");
  const auto tensor = testing::number_at<TensorEntry>(sample(), at);
  expect_refused(with(at + offsetof(TensorEntry, blob), tensor.blob + 1), "no multiple of 256");
  expect_refused(with(at + offsetof(TensorEntry, blob), tensor.blob - 256),
                 "but what is before it ends at");
  expect_refused(with(at + offsetof(TensorEntry, blob_bytes), tensor.blob_bytes + 1), "of q8_0");
  expect_refused(with(at + offsetof(TensorEntry, rank), 0u), "has 0 dimensions");
  expect_refused(with(at + offsetof(TensorEntry, rank), 5u), "has 5 dimensions");
  expect_refused(with(at + offsetof(TensorEntry, dims), 0u), "dimension 0");
  expect_refused(with(at + offsetof(TensorEntry, dims), 65u),
                 "rows of 65 values, no multiple of the block of q8_0");
  auto partial = tensor;
  partial.dims[0] = 65;
  partial.blob_bytes = 0;
  expect_refused(with(at, partial), "rows of 65 values, no multiple of the block of q8_0");
  partial.type = p64::kTypeQ4KSoa;
  expect_refused(with(at, partial), "rows of 65 values, no multiple of the block of q4_k_soa");
  expect_refused(with(at + offsetof(TensorEntry, layer), 3u), "is of layer 3");
  expect_refused(with(at + offsetof(TensorEntry, name), 0xfffffff0u), "does not end within");
  expect_refused(with(at + offsetof(TensorEntry, name), 0u), "is empty");
  Bytes huge = sample();
  auto shape = tensor;
  shape.rank = 4;
  shape.dims = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
  testing::set_number(huge, at, shape);
  testing::seal(huge);
  expect_refused(huge, "makes no tensor");
  shape.dims = {0xffffffe0, 0x7fffffff, 1, 1};
  testing::set_number(huge, at, shape);
  testing::seal(huge);
  expect_refused(huge, "more values than a container can hold");
}

TEST(HostileP64, ATensorThatIsThereTwiceIsRefused) {
  const auto gate = testing::number_at<TensorEntry>(sample(), entry("blk.0.ffn_gate.weight"));
  expect_refused(with(entry("blk.0.ffn_up.weight") + offsetof(TensorEntry, role), gate.role),
                 "'blk.0.ffn_gate.weight' occurs twice");
}

TEST(HostileP64, AKeyThatIsThereTwiceIsRefused) {
  testing::GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  writer.u32("first.key", 1);
  writer.u32("other.key", 2);
  Bytes bytes = testing::p64_image(writer.image().bytes, 256);
  const std::string_view key = "other.key";
  const auto* text = reinterpret_cast<const std::byte*>(key.data());
  const auto found = std::search(bytes.begin(), bytes.end(), text, text + key.size());
  ASSERT_NE(found, bytes.end());
  std::ranges::copy(std::as_bytes(std::span("first.key", key.size())), found);
  testing::seal(bytes);
  expect_refused(bytes, "'first.key'");
}

TEST(HostileP64, AMapOfMoreThanFourGiBIsRefusedAndAGgufFileIsNot) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lathe_large_" + std::to_string(::getpid()));
  const auto write_sparse = [&](const Bytes& head) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(head.data()), std::ssize(head));
    file.close();
    return ::truncate(path.c_str(), 5 * kGiB) == 0;
  };
  if (!write_sparse(sample())) {
    std::filesystem::remove(path);
    GTEST_SKIP() << "no sparse files here";
  }
  const auto container = GgufFile::open(path.string());
  EXPECT_FALSE(container);
  if (!container) {
    EXPECT_NE(container.error().message.find("reach 4294967295"), std::string::npos);
  }

  // Two matrices of f32, the second beyond 4 GiB.
  testing::GgufWriter writer;
  writer.string("general.architecture", "llama");
  writer.tensor("first", {1024, 1100000}, 0, {});
  writer.tensor("second", {1024, 1}, 0, {});
  testing::GgufImage image = writer.image();
  image.set("tensor 1 offset", std::uint64_t{1024} * 1100000 * 4);
  ASSERT_TRUE(write_sparse(image.bytes));
  {
    const auto file = GgufFile::open(path.string());
    ASSERT_TRUE(file) << file.error().text();
    const GgufTensor* second = (*file)->tensor("second");
    EXPECT_GT(second->offset, 4 * kGiB);
    EXPECT_EQ(std::to_integer<int>((*file)->data(*second).back()), 0);
    EXPECT_EQ(report_model(**file)->largest_tensor_bytes, std::int64_t{1024} * 1100000 * 4);
    const auto layout = lay_out_p64(**file, 16384);
    EXPECT_FALSE(layout);
    if (!layout) {
      EXPECT_NE(layout.error().message.find("reach 4294967295"), std::string::npos);
    }
  }
  std::filesystem::remove(path);
}

TEST(HostileP64, IntegrityDecidesWhichDamageIsFound) {
  const auto header = testing::number_at<Header>(sample(), 0);
  Bytes tensor = sample();
  const auto embedding = testing::number_at<TensorEntry>(tensor, entry("token_embd.weight"));
  tensor[embedding.blob + 100] ^= std::byte{1};
  expect_refused(tensor, "tensor 'token_embd.weight' is damaged", Code::corrupt_file,
                 Integrity::full);
  EXPECT_TRUE(read(tensor, Integrity::metadata));
  Bytes metadata = sample();
  metadata[header.manifold] ^= std::byte{1};
  expect_refused(metadata, "all before the tensors is damaged");
  EXPECT_TRUE(read(metadata, Integrity::structure));
}

TEST(HostileP64, EveryFlippedBitBeforeTheTensorsIsFound) {
  const Bytes& bytes = sample();
  const auto header = testing::number_at<Header>(bytes, 0);
  for (std::size_t i = 4; i < header.checksum + 4; ++i) {
    Bytes damaged = bytes;
    damaged[i] ^= static_cast<std::byte>(1 << i % 8);
    const auto done = read(damaged);
    ASSERT_FALSE(done) << "byte " << i;
    EXPECT_FALSE(done.error().message.empty());
  }
}

// What a checksum covers: everything before the tensors, and each tensor.
std::vector<std::pair<std::size_t, std::size_t>> covered_ranges() {
  const auto header = testing::number_at<Header>(sample(), 0);
  std::vector<std::pair<std::size_t, std::size_t>> ranges = {{0, header.checksum + 4}};
  for (std::size_t i = 0; i < header.tensor_count; ++i) {
    const auto tensor = testing::number_at<TensorEntry>(sample(), header.tensor_table + 64 * i);
    ranges.emplace_back(tensor.blob, tensor.blob_bytes);
  }
  return ranges;
}

TEST(HostileP64, FiveHundredCorruptedContainersAreEachRefusedWithAReason) {
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const auto ranges = covered_ranges();
  ASSERT_GT(ranges.size(), 10u);
  for (int i = 0; i < 500; ++i) {
    Bytes bytes = sample();
    const auto [first, count] = ranges[below(ranges.size())];
    ASSERT_LE(first + count, bytes.size());
    const std::size_t at = first + below(count), length = 1 + below(std::min(count, 4096ul));
    while (bytes == sample()) {
      switch (below(4)) {
        case 0:
          bytes[at] ^= static_cast<std::byte>(1 << below(8));
          break;
        case 1:
          for (std::size_t j = at; j < std::min(at + length, first + count); ++j)
            bytes[j] = static_cast<std::byte>(random());
          break;
        case 2:
          std::swap(bytes[at], bytes[first + below(count)]);
          break;
        default:
          bytes.resize(at);
      }
    }
    const auto done = read(bytes, Integrity::full);
    ASSERT_FALSE(done) << "container " << i << ", byte " << at;
    EXPECT_GT(done.error().message.size(), 10u) << done.error().message;
  }
}

TEST(HostileP64, FiveHundredDamagedContainersAreRefusedOrHarmless) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const auto header = testing::number_at<Header>(sample(), 0);
  const std::uint32_t absurd[] = {0,   1,          2,          63,         64,
                                  255, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff};
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    Bytes bytes = sample();
    for (std::size_t change = 0; change <= below(4); ++change) {
      const std::size_t at = below(header.checksum / 4) * 4;
      switch (below(4)) {
        case 0:
          bytes[at + below(4)] ^= static_cast<std::byte>(1 << below(8));
          break;
        case 1:
          testing::set_number(bytes, at, absurd[below(std::size(absurd))]);
          break;
        case 2:
          testing::set_number(bytes, at, testing::number_at<std::uint32_t>(bytes, below(1000) * 4));
          break;
        default:
          std::copy_n(bytes.begin() + std::ptrdiff_t(below(bytes.size() / 2)), 64,
                      bytes.begin() + std::ptrdiff_t(at));
      }
    }
    if (below(8) == 0) bytes.resize(below(bytes.size()));
    if (below(4) != 0) testing::seal(bytes);
    const auto integrity = static_cast<Integrity>(below(3));
    if (const auto done = read(bytes, integrity); !done) {
      ++refused;
      EXPECT_FALSE(done.error().message.empty());
    }
  }
  EXPECT_GT(refused, 250);
}

}  // namespace
}  // namespace lathe
