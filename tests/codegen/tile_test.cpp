// Owns the tests of the tiled weight layout: its sizes, that it is a permutation of bits, and that
// the bits are where docs/weight-layout.md says.
#include "lathe/codegen/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/tile_reader.h"
#include "verification/random.h"

namespace lathe {
namespace {

using testing::Bytes;
using verification::Random;

std::vector<FormatRow> tiled_formats() {
  std::vector<FormatRow> out;
  for (const FormatRow& format : formats())
    if (tile_shape(format.format, 16, 256)) out.push_back(format);
  return out;
}

Bytes to_tiles(const TileShape& shape, const Bytes& blocks) {
  Bytes tiles(static_cast<std::size_t>(shape.bytes()), std::byte{0xaa});
  blocks_to_tiles(shape, blocks.data(), tiles.data());
  return tiles;
}

// As bits, so that the sign of zero counts. All NaN are one: which operand's bits the sum of two
// NaN has is the compiler's choice, and it chooses anew in every function.
std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> out;
  for (float value : values)
    out.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value));
  return out;
}

class TileTest : public ::testing::TestWithParam<FormatRow> {
 protected:
  // Lengths of rows: every number of sub-blocks per tile, an odd one among them, and, for the
  // formats without blocks, ends within a sub-block.
  std::vector<int> lengths() const {
    if (format_.block == 256) return {256, 512, 1792};
    if (format_.block == 32) return {32, 64, 96, 128, 192, 256, 288, 320, 352, 576, 896, 1024};
    return {1, 7, 31, 32, 63, 64, 65, 100, 128, 130, 192, 257, 576, 1000};
  }

  TileShape shape(int n, int k) const {
    const Result<TileShape> shape = tile_shape(format_.format, n, k);
    EXPECT_TRUE(shape) << shape.error().text();
    return shape ? *shape : TileShape{};
  }

  Bytes random_blocks(int n, int k) {
    Bytes blocks(static_cast<std::size_t>(n * row_bytes(format_.format, k)));
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random_.bits());
    return blocks;
  }

  const FormatRow& format_ = GetParam();
  const std::uint64_t seed_ = verification::fresh_seed();
  Random random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

INSTANTIATE_TEST_SUITE_P(Formats, TileTest, ::testing::ValuesIn(tiled_formats()),
                         [](const auto& info) { return info.param.name; });

TEST_P(TileTest, ShapeFollowsTheRule) {
  std::set<int> seen;
  for (int k : lengths()) {
    const TileShape s = shape(17, k);
    const int total = (k + 63) / 64 * 2;
    EXPECT_EQ(s.subs * s.tiles_per_row, total) << k;
    EXPECT_EQ(s.subs % 2, 0);
    for (int more = s.subs + 2; more <= 8; more += 2) EXPECT_NE(total % more, 0) << k;
    EXPECT_EQ(s.row_tiles, 2);
    EXPECT_EQ(s.tile_bytes % 16, 0);
    // A tile has the bits of its blocks and no others.
    EXPECT_EQ(s.tile_bytes * 8, 16 * 32 * s.subs / format_.block * format_.bytes * 8);
    EXPECT_EQ(s.bytes(), 2ll * s.tiles_per_row * s.tile_bytes);
    seen.insert(s.subs);
  }
  EXPECT_EQ(seen, format_.block == 256 ? (std::set<int>{8}) : (std::set<int>{2, 4, 6, 8}));
}

TEST_P(TileTest, RowsComeBackBitForBit) {
  for (int k : lengths()) {
    for (int n : {1, 15, 16, 17, 40}) {
      const TileShape s = shape(n, k);
      const Bytes blocks = random_blocks(n, k), tiles = to_tiles(s, blocks);
      const auto stride = static_cast<std::size_t>(row_bytes(format_.format, k));
      for (int r = 0; r < n; ++r) {
        const std::byte* expected = blocks.data() + static_cast<std::size_t>(r) * stride;
        Bytes row(stride, std::byte{0x55});
        tiles_to_blocks(s, tiles.data(), r, row.data());
        ASSERT_TRUE(std::equal(row.begin(), row.end(), expected))
            << n << " x " << k << " row " << r;
        std::vector<float> values(static_cast<std::size_t>(k)), as_stored(values);
        unpack_tiles(s, tiles.data(), r, values.data());
        format_.unpack(expected, k, as_stored.data());
        ASSERT_EQ(bits_of(values), bits_of(as_stored)) << n << " x " << k << " row " << r;
      }
    }
  }
}

TEST_P(TileTest, LanesReadTheValues) {
  for (int k : lengths()) {
    const int n = 37;
    const TileShape s = shape(n, k);
    const Bytes blocks = random_blocks(n, k), tiles = to_tiles(s, blocks);
    const int width = 32 * s.subs;
    for (int tile = 0; tile < s.tiles(); ++tile) {
      const std::vector<float> read =
          testing::read_tile(format_.format, s.subs,
                             std::span(tiles).subspan(static_cast<std::size_t>(tile * s.tile_bytes),
                                                      static_cast<std::size_t>(s.tile_bytes)));
      const int first_row = tile / s.tiles_per_row * 16, first = tile % s.tiles_per_row * width;
      for (int r = first_row; r < std::min(first_row + 16, n); ++r) {
        std::vector<float> row(static_cast<std::size_t>(k));
        format_.unpack(blocks.data() + r * row_bytes(format_.format, k), k, row.data());
        const auto at = static_cast<std::ptrdiff_t>((r - first_row) * width);
        const int count = std::min(width, k - first);
        const std::vector<float> part(read.begin() + at, read.begin() + at + count);
        row = {row.begin() + first, row.begin() + first + count};
        ASSERT_EQ(bits_of(part), bits_of(row)) << "k " << k << " tile " << tile << " row " << r;
      }
    }
  }
}

// Bit number i of the blocks goes somewhere: written as the bits of i, one conversion for each, the
// tiles tell for every one of their bits where it came from.
TEST_P(TileTest, EveryBitOfTheBlocksHasOnePlace) {
  for (int k : lengths()) {
    if (k % 64 != 0 || k > 600) continue;
    const TileShape s = shape(16, k);
    const auto bits = static_cast<std::size_t>(s.bytes()) * 8;
    ASSERT_EQ(bits, static_cast<std::size_t>(16 * row_bytes(format_.format, k)) * 8);
    std::vector<std::size_t> origin(bits);
    for (std::size_t digit = 0; bits >> digit != 0; ++digit) {
      Bytes blocks(bits / 8);
      for (std::size_t i = 0; i < bits; ++i)
        blocks[i / 8] |= static_cast<std::byte>((i >> digit & 1) << (i % 8));
      const Bytes tiles = to_tiles(s, blocks);
      for (std::size_t i = 0; i < bits; ++i)
        origin[i] |= (std::to_integer<std::size_t>(tiles[i / 8]) >> (i % 8) & 1) << digit;
    }
    std::sort(origin.begin(), origin.end());
    for (std::size_t i = 0; i < bits; ++i) ASSERT_EQ(origin[i], i) << "k " << k;
  }
}

TEST_P(TileTest, OneHotIsFoundInItsPlace) {
  const int k = std::max(format_.block, 64), n = 16;
  const TileShape s = shape(n, k);
  ASSERT_EQ(s.tiles(), 1);
  const auto stride = static_cast<std::size_t>(row_bytes(format_.format, k));
  std::vector<float> zeros(static_cast<std::size_t>(k));
  Bytes empty(stride * n);
  for (std::size_t r = 0; r < n; ++r) format_.pack(zeros.data(), k, empty.data() + r * stride);
  for (int hot = 0; hot < n * k; ++hot) {
    std::vector<float> row = zeros;
    row[static_cast<std::size_t>(hot % k)] = 1;
    Bytes blocks = empty;
    format_.pack(row.data(), k, blocks.data() + static_cast<std::size_t>(hot / k) * stride);
    const std::vector<float> read = testing::read_tile(format_.format, s.subs, to_tiles(s, blocks));
    // The tables of the iq4 formats have no 0: beside a 1 their least entry is 1 / 113.
    const bool no_zero = format_.format == Format::iq4_nl || format_.format == Format::iq4_xs;
    for (int i = 0; i < n * k; ++i)
      ASSERT_NEAR(read[static_cast<std::size_t>(i)], i == hot ? 1 : 0,
                  2e-3 + (i != hot && no_zero ? 1.0 / 113 : 0))
          << i << ", hot " << hot;
  }
}

// Padding is what zero bits in the blocks would give.
TEST_P(TileTest, PaddingIsZeroBits) {
  for (int k : lengths()) {
    if (format_.block == 256) continue;
    const int n = 5, full = (k + 63) / 64 * 64;
    const Bytes blocks = random_blocks(n, k);
    Bytes padded(static_cast<std::size_t>(16 * row_bytes(format_.format, full)));
    const auto stride = static_cast<std::size_t>(row_bytes(format_.format, k));
    const auto padded_stride = static_cast<std::size_t>(row_bytes(format_.format, full));
    for (std::size_t r = 0; r < n; ++r)
      std::copy_n(blocks.data() + r * stride, stride, padded.data() + r * padded_stride);
    EXPECT_EQ(to_tiles(shape(n, k), blocks), to_tiles(shape(16, full), padded)) << k;
  }
}

// The tiles of a share of the rows are written, and no others.
TEST_P(TileTest, SharesOfTheRowsAreDisjoint) {
  const TileShape s = shape(70, std::max(format_.block, 64));
  const Bytes blocks = random_blocks(s.n, s.k), whole = to_tiles(s, blocks);
  const auto per_row_tile = static_cast<std::size_t>(s.bytes() / s.row_tiles);
  Bytes part(whole.size(), std::byte{0x77});
  blocks_to_tiles(s, blocks.data(), part.data(), 1, 3);
  for (std::size_t i = 0; i < whole.size(); ++i)
    ASSERT_EQ(part[i], i / per_row_tile == 1 || i / per_row_tile == 2 ? whole[i] : std::byte{0x77});
}

// Single bits of a tile and what hangs on them, by hand from the document: one code, or the codes
// that a scale belongs to.
TEST(TileBits, AreWhereTheDocumentSays) {
  const struct {
    Format format;
    int k;     // one row of tiles, so many values wide
    int byte;  // of the first tile
    int bit;
    int row, first, count;  // the values that change
  } expected[] = {
      // Lane 6 (g = 1, t = 2), word 3 (row 9, second half), element 1; sub-blocks 2 and 3.
      {Format::q4_0, 256, 512 + 6 * 16 + 3 * 4 + 1, 0, 9, 2 * 32 + 16 + 8 + 1, 1},
      {Format::q4_k, 256, 512 + 6 * 16 + 3 * 4 + 1, 3, 9, 2 * 32 + 16 + 8 + 1, 1},
      {Format::q4_1, 192, 512 + 6 * 16 + 3 * 4 + 1, 7, 9, 3 * 32 + 16 + 8 + 1, 1},
      // Fifth bits of the same: after four chunks or three, 16 or 12 bytes a lane.
      {Format::q5_k, 256, 2048 + 6 * 16 + 4 + 1, 3, 9, 2 * 32 + 16 + 8 + 1, 1},
      {Format::q5_0, 192, 1536 + 6 * 12 + 4 + 1, 7, 9, 3 * 32 + 16 + 8 + 1, 1},
      {Format::q5_1, 192, 1536 + 6 * 12 + 4 + 1, 4, 1, 3 * 32 + 8 + 1, 1},
      {Format::q8_0, 128, 3 * 512 + 6 * 16 + 2 * 4 + 3, 7, 1, 3 * 32 + 16 + 8 + 3, 1},
      // Sub-block 5 has words 15, 16, 17: chunk 3 word 3, chunk 4 words 0 and 1.
      {Format::q6_k, 256, 3 * 512 + 6 * 16 + 3 * 4 + 1, 5, 1, 5 * 32 + 8 + 1, 1},
      {Format::q6_k, 256, 4 * 512 + 6 * 16 + 1 * 4 + 1, 0, 1, 5 * 32 + 16 + 8 + 1, 1},
      {Format::q6_k, 256, 3 * 512 + 6 * 16 + 3 * 4 + 1, 7, 9, 5 * 32 + 16 + 8 + 1, 1},
      {Format::q6_k, 256, 4 * 512 + 6 * 16 + 1 * 4 + 1, 6, 9, 5 * 32 + 16 + 8 + 1, 1},
      // Chunk 5 is the second half of sub-block 2; words 2 and 3 of a lane are its second row.
      {Format::f16, 128, 5 * 512 + 6 * 16 + 4 * 2 + 3 * 2, 9 - 8, 9, 2 * 32 + 16 + 8 + 3, 1},
      {Format::bf16, 64, 2 * 512 + 6 * 16 + 2 * 2 * 1 + 1, 4, 1, 32 + 8 + 2, 1},
      // Pairs of sub-blocks 4 to 7 in chunk 1, third bits in chunk 2.
      {Format::q2_k, 256, 512 + 6 * 16 + 3 * 4 + 1, 5, 9, 6 * 32 + 16 + 8 + 1, 1},
      {Format::q3_k, 256, 6 * 16 + 2 * 4 + 3, 0, 1, 16 + 8 + 3, 1},
      {Format::q3_k, 256, 1024 + 6 * 16 + 3 * 4 + 1, 6, 9, 6 * 32 + 16 + 8 + 1, 1},
      // Scales: of lane 6's rows and sub-blocks 4 and 5.
      {Format::q4_k, 256, 2048 + 6 * 4 + 3, 2, 9, 5 * 32, 32},
      {Format::q4_k, 256, 2048 + 6 * 4 + 2, 7, 9, 4 * 32, 32},        // min, bit 5
      {Format::q4_k, 256, 2048 + 128 + 6 * 2 + 1, 1, 1, 5 * 32, 32},  // min, bit 1
      {Format::q5_k, 256, 2560 + 128 + 6 * 2 + 0, 7, 9, 4 * 32, 32},  // min, bit 3
      {Format::q5_k, 256, 2560 + 192 + 8 + 0, 3, 1, 0, 256},          // d of row 1
      {Format::q4_k, 256, 2048 + 192 + 8 + 6, 3, 9, 0, 256},          // dmin of row 9
      {Format::q6_k, 256, 3072 + 6 * 8 + 4 + 2 + 1, 2, 9, 5 * 32 + 16, 16},
      {Format::q6_k, 256, 3072 + 256 + 4 + 2, 3, 9, 0, 256},
      // Four halves per (g, t); t counts pairs of sub-blocks, three of them at 192 values.
      {Format::q8_0, 192, 3072 + (1 * 3 + 2) * 8 + 3 * 2, 3, 9, 5 * 32, 32},
      {Format::q4_1, 192, 1536 + 192 + (1 * 3 + 2) * 8 + 1 * 2, 3, 1, 5 * 32, 32},  // m
      {Format::q5_0, 64, 640 + 7 * 8 + 2 * 2, 3, 15, 0, 32},
      {Format::iq4_nl, 64, 512 + 7 * 8 + 2 * 2, 3, 15, 0, 32},
      {Format::q2_k, 256, 1024 + 6 * 8 + 4 + 2 + 1, 1, 9, 5 * 32 + 16, 16},
      {Format::q2_k, 256, 1024 + 6 * 8 + 0 + 2 + 0, 6, 1, 5 * 32, 16},  // min
      {Format::q2_k, 256, 1024 + 256 + 8 + 4, 3, 9, 0, 256},
      {Format::q3_k, 256, 1536 + 6 * 4 + 3, 6, 9, 5 * 32 + 16, 16},
      {Format::q3_k, 256, 1536 + 128 + 6 * 2 + 1, 6, 9, 5 * 32 + 16, 16},
      {Format::q3_k, 256, 1536 + 128 + 6 * 2 + 0, 2, 1, 5 * 32, 16},
      {Format::q3_k, 256, 1536 + 192 + 4 + 2, 3, 9, 0, 256},
      {Format::iq4_xs, 256, 2048 + 6 * 2 + 1, 6, 9, 5 * 32, 32},
      {Format::iq4_xs, 256, 2048 + 64 + 6, 6, 9, 5 * 32, 32},
      {Format::iq4_xs, 256, 2048 + 96 + 4, 3, 1, 0, 256},
      {Format::mxfp4, 192, 1536 + (1 * 3 + 2) * 4 + 3, 0, 9, 5 * 32, 32},
  };
  for (const auto& e : expected) {
    const Result<TileShape> shape = tile_shape(e.format, 16, e.k);
    ASSERT_TRUE(shape);
    SCOPED_TRACE(std::string(row(e.format).name) + " byte " + std::to_string(e.byte) + " bit " +
                 std::to_string(e.bit));
    // Small halves everywhere, so that every number is finite and every code counts.
    const testing::KernelCase like{
        .key = {.type = KernelType::retile, .format = e.format, .k = e.k, .n = 16}};
    Bytes tiles = to_tiles(*shape, testing::make_arguments(like, 1)[0]);
    const auto all = [&] {
      std::vector<float> values(static_cast<std::size_t>(16 * e.k));
      for (int r = 0; r < 16; ++r) unpack_tiles(*shape, tiles.data(), r, values.data() + r * e.k);
      return values;
    };
    const std::vector<float> before = all();
    tiles[static_cast<std::size_t>(e.byte)] ^= static_cast<std::byte>(1 << e.bit);
    const std::vector<float> after = all();
    int changed = 0;
    for (int i = 0; i < 16 * e.k; ++i) {
      if (before[static_cast<std::size_t>(i)] == after[static_cast<std::size_t>(i)]) continue;
      ++changed;
      EXPECT_EQ(i / e.k, e.row);
      EXPECT_GE(i % e.k, e.first);
      EXPECT_LT(i % e.k, e.first + e.count);
    }
    EXPECT_GE(changed, e.count == 1 ? 1 : e.count / 2);
  }
}

TEST(TileShape, CostsLittleForModels) {
  // n x k of SmolLM2, TinyLlama, Llama 3, Mistral, Qwen 2.5 and Gemma 3 in their sizes.
  constexpr int kMatrices[][2] = {
      {576, 576},     {192, 576},    {1536, 576},    {576, 1536},   {49152, 576},   {2048, 2048},
      {256, 2048},    {5632, 2048},  {2048, 5632},   {32000, 2048}, {512, 2048},    {8192, 2048},
      {2048, 8192},   {4096, 4096},  {1024, 4096},   {14336, 4096}, {4096, 14336},  {128256, 4096},
      {32768, 4096},  {8192, 8192},  {28672, 8192},  {8192, 28672}, {128256, 8192}, {896, 896},
      {128, 896},     {4864, 896},   {896, 4864},    {151936, 896}, {3584, 3584},   {512, 3584},
      {18944, 3584},  {3584, 18944}, {152064, 3584}, {640, 1024},   {1024, 640},    {256, 640},
      {2048, 640},    {640, 2048},   {262144, 640},  {1152, 1152},  {6912, 1152},   {1152, 6912},
      {262144, 1152}, {2560, 2560},  {10240, 2560},  {2560, 10240}, {262208, 2560}, {5376, 5376},
      {21504, 5376},  {5376, 21504}, {262208, 5376},
  };
  for (const FormatRow& format : tiled_formats()) {
    for (const auto& [n, k] : kMatrices) {
      if (k % format.block != 0) continue;
      const Result<TileShape> shape = tile_shape(format.format, n, k);
      ASSERT_TRUE(shape) << shape.error().text();
      const std::int64_t blocks = n * row_bytes(format.format, k);
      EXPECT_GE(shape->bytes(), blocks);
      EXPECT_LE(shape->bytes() * 100, blocks * 103) << format.name << " " << n << " x " << k;
    }
  }
}

TEST(TileShape, CountsInSixtyFourBits) {
  const Result<TileShape> shape = tile_shape(Format::f16, 262144, 5376);
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->bytes(), 262144ll * 5376 * 2);
}

TEST(TileShape, RefusesWithAReason) {
  const struct {
    Format format;
    int n, k;
    const char* word;
  } refused[] = {{Format::f32, 16, 64, "f32"},   {Format::q4_k, 16, 128, "256"},
                 {Format::q8_0, 16, 33, "32"},   {Format::q8_0, 0, 32, "n = 0"},
                 {Format::f16, 1, -1, "k = -1"}, {Format::f16, 1 << 30, 1 << 24, "tiles"}};
  for (const auto& [format, n, k, word] : refused) {
    const Result<TileShape> shape = tile_shape(format, n, k);
    ASSERT_FALSE(shape) << word;
    EXPECT_NE(shape.error().message.find(word), std::string::npos) << shape.error().message;
  }
}

}  // namespace
}  // namespace lathe
