// Owns the order of bits in a tile; docs/weight-layout.md has it in pictures.
#include "codegen/tile_fields.h"

#include <utility>

#include "ptx_templates/ops/tile_shapes.h"

namespace lathe {
namespace {

// Some bits within a byte.
struct Bits {
  int byte;
  int shift;
};

// One value of a tile: its row, its place along k, and who reads it. Of the two rows g and g + 8
// and the two halves of a sub-block that a lane reads, `word` counts rows first.
struct Value {
  int row, sub, index;
  int lane, word, element;
};

class FieldList {
 public:
  FieldList(Format format, int subs)
      : format_(row(format)),
        subs_(subs),
        scales_(dev::tile_code_bytes(tile_layout(format).code_bits, subs)) {
    for (int r = 0; r < dev::kTileRows; ++r) {
      for (int sub = 0; sub < subs; ++sub) {
        for (int i = 0; i < dev::kTileSub; ++i)
          add_code({r, sub, i, 4 * (r % 8) + i % 16 / 4, r / 8 + i / 16 * 2, i % 4});
      }
      add_scales(r);
    }
  }

  std::vector<TileField> take() { return std::move(fields_); }

 private:
  void add(int row, int column, Bits block, Bits tile, int bits) {
    fields_.push_back({row, column, block.byte, tile.byte, static_cast<std::uint8_t>(block.shift),
                       static_cast<std::uint8_t>(tile.shift), static_cast<std::uint8_t>(bits)});
  }
  void add_half(int row, int column, int block_byte, int tile_byte) {
    for (int i = 0; i < 2; ++i) add(row, column, {block_byte + i, 0}, {tile_byte + i, 0}, 8);
  }

  // Where a lane's byte of a word of a 512-byte chunk is.
  static int word_byte(const Value& v, int chunk, int word) {
    return chunk * dev::kTileChunk + v.lane * 16 + 4 * word + v.element;
  }

  void add_code(const Value& v) {
    const int column = v.sub * dev::kTileSub + v.index;
    switch (format_.format) {
      default:  // has no tiles
        return;
      case Format::f16:
      case Format::bf16: {
        const int chunk = 2 * v.sub + v.word / 2;
        return add_half(v.row, column, 2 * column,
                        chunk * dev::kTileChunk + v.lane * 16 + v.word % 2 * 8 + 2 * v.element);
      }
      case Format::q8_0:
        return add(v.row, column, {v.sub * format_.bytes + 2 + v.index, 0},
                   {word_byte(v, v.sub, v.word), 0}, 8);
      case Format::q6_k:
        return add_six_bits(v);
      case Format::q4_k:
      case Format::q5_k: {
        add_nibble(v, {format_.bytes - 128 + 32 * (v.sub / 2) + v.index, 4 * (v.sub % 2)});
        if (format_.format == Format::q5_k) add_fifth(v, {16 + v.index, v.sub});
        return;
      }
      case Format::q4_0:
      case Format::q4_1:
      case Format::q5_0:
      case Format::q5_1:
      case Format::iq4_nl:
      case Format::mxfp4: {
        const int block = v.sub * format_.bytes, nibbles = block + format_.bytes - 16;
        add_nibble(v, {nibbles + v.index % 16, v.index / 16 * 4});
        if (format_.format == Format::q5_0 || format_.format == Format::q5_1)
          add_fifth(v, {nibbles - 4 + v.index / 8, v.index % 8});
        return;
      }
      case Format::iq4_xs:
        return add_nibble(v, {8 + 16 * v.sub + v.index % 16, v.index / 16 * 4});
      case Format::q2_k:
        return add_pair(v, 16);
      case Format::q3_k:
        add_pair(v, 32);
        return add(v.row, column, {v.index, v.sub}, {word_byte(v, 2, v.word), v.sub}, 1);
    }
  }

  void add_nibble(const Value& v, Bits block) {
    add(v.row, v.sub * dev::kTileSub + v.index, block,
        {word_byte(v, v.sub / 2, v.word), 4 * (v.sub % 2)}, 4);
  }

  // Two bits, which begin at `first` in the block.
  void add_pair(const Value& v, int first) {
    const int shift = v.sub % 4 * 2;
    add(v.row, v.sub * dev::kTileSub + v.index, {first + 32 * (v.sub / 4) + v.index, shift},
        {word_byte(v, v.sub / 4, v.word), shift}, 2);
  }

  void add_fifth(const Value& v, Bits block) {
    const int word = dev::tile_nibble_bytes(subs_) + v.lane * 2 * subs_ + 4 * (v.sub / 2);
    add(v.row, v.sub * dev::kTileSub + v.index, block, {word + v.element, v.word + 4 * (v.sub % 2)},
        1);
  }

  void add_six_bits(const Value& v) {
    const int half = v.sub / 4, part = v.sub % 4;
    const Bits low = {64 * half + 32 * (part % 2) + v.index, part / 2 * 4};
    const Bits high = {128 + 32 * half + v.index, 2 * part};
    // The words of the tile are numbered through: three per sub-block.
    const auto place = [&](int word, int shift) -> Bits {
      const int number = 3 * v.sub + word;
      return {word_byte(v, number / 4, number % 4), shift};
    };
    const int column = v.sub * dev::kTileSub + v.index;
    if (v.word < 3) {
      add(v.row, column, low, place(v.word, 0), 4);
      add(v.row, column, high, place(v.word, 4), 2);
    } else {
      add(v.row, column, high, place(0, 6), 2);
      add(v.row, column, {low.byte, low.shift + 2}, place(1, 6), 2);
      add(v.row, column, low, place(2, 6), 2);
    }
  }

  void add_scales(int r) {
    switch (format_.format) {
      default:  // f16 and bf16, and what has no tiles
        return;
      case Format::q8_0:
      case Format::q4_0:
      case Format::q5_0:
      case Format::iq4_nl:
        return add_block_halves(r, scales_, 0);
      case Format::q4_1:
      case Format::q5_1:
        add_block_halves(r, scales_, 0);
        return add_block_halves(r, scales_ + 32 * subs_, 2);
      case Format::q4_k:
      case Format::q5_k:
        return add_scales_and_mins(r);
      case Format::q6_k:
        for (int run = 0; run < 16; ++run)
          add(r, 16 * run, {192 + run, 0},
              {scales_ + (4 * (r % 8) + run / 4) * 8 + r / 8 * 4 + run % 4, 0}, 8);
        return add_half(r, 0, 208, scales_ + dev::kTileDeltaAt + r % 8 * 4 + r / 8 * 2);
      case Format::q2_k:
        return add_q2_scales(r);
      case Format::q3_k:
        return add_q3_scales(r);
      case Format::iq4_xs:
        return add_xs_scales(r);
      case Format::mxfp4:
        for (int sub = 0; sub < subs_; ++sub)
          add(r, sub * dev::kTileSub, {sub * format_.bytes, 0},
              {scales_ + (r % 8 * (subs_ / 2) + sub / 2) * 4 + r / 8 * 2 + sub % 2, 0}, 8);
    }
  }

  // The half at `offset` of each 32-value block: four per lane quad and pair of sub-blocks.
  void add_block_halves(int r, int section, int offset) {
    for (int sub = 0; sub < subs_; ++sub)
      add_half(r, sub * dev::kTileSub, sub * format_.bytes + offset,
               section + (r % 8 * (subs_ / 2) + sub / 2) * 8 + r / 8 * 4 + sub % 2 * 2);
  }

  void add_scales_and_mins(int r) {
    for (int sub = 0; sub < 8; ++sub) {
      const int lane = 4 * (r % 8) + sub / 2, half = r / 8, odd = sub % 2;
      const int scale = scales_ + lane * 4 + 2 * half + odd;
      const Bits min = {scales_ + dev::kTileMinsAt + lane * 2 + odd, 4 * half};
      const int column = sub * dev::kTileSub;
      if (sub < 4) {  // six bits in place, as {low four, high two}
        add(r, column, {4 + sub, 0}, {scale, 0}, 6);
        add(r, column, {8 + sub, 0}, min, 4);
        add(r, column, {8 + sub, 4}, {scale, 6}, 2);
      } else {  // low four bits in the third word, high two on top of those of sub - 4
        add(r, column, {8 + sub, 0}, {scale, 0}, 4);
        add(r, column, {sub, 6}, {scale, 4}, 2);
        add(r, column, {8 + sub, 4}, min, 4);
        add(r, column, {4 + sub, 6}, {scale, 6}, 2);
      }
    }
    for (int i = 0; i < 2; ++i)  // d, dmin
      add_half(r, 0, 2 * i, scales_ + dev::kTileHalvesAt + r % 8 * 8 + r / 8 * 4 + 2 * i);
  }

  void add_q2_scales(int r) {
    for (int run = 0; run < 16; ++run)
      add(r, 16 * run, {run, 0}, {scales_ + (4 * (r % 8) + run / 4) * 8 + r / 8 * 4 + run % 4, 0},
          8);
    for (int i = 0; i < 2; ++i)  // d, dmin
      add_half(r, 0, 80 + 2 * i, scales_ + dev::kTileDeltaAt + r % 8 * 8 + r / 8 * 4 + 2 * i);
  }

  void add_q3_scales(int r) {
    for (int run = 0; run < 16; ++run) {
      const int lane = 4 * (r % 8) + run / 4, of_four = run % 4, half = r / 8;
      add(r, 16 * run, {96 + run % 8, run / 8 * 4}, {scales_ + lane * 4 + of_four, 4 * half}, 4);
      add(r, 16 * run, {104 + run % 4, run / 4 * 2},
          {scales_ + dev::kTileQ3HighAt + lane * 2 + of_four % 2, 4 * half + of_four / 2 * 2}, 2);
    }
    add_half(r, 0, 108, scales_ + dev::kTileQ3DeltaAt + r % 8 * 4 + r / 8 * 2);
  }

  void add_xs_scales(int r) {
    for (int sub = 0; sub < 8; ++sub) {
      const int lane = 4 * (r % 8) + sub / 2, half = r / 8, odd = sub % 2, column = 32 * sub;
      add(r, column, {4 + sub / 2, 4 * odd}, {scales_ + lane * 2 + odd, 4 * half}, 4);
      add(r, column, {2 + sub / 4, sub % 4 * 2},
          {scales_ + dev::kTileXsHighAt + lane, 4 * half + 2 * odd}, 2);
    }
    add_half(r, 0, 0, scales_ + dev::kTileXsDeltaAt + r % 8 * 4 + r / 8 * 2);
  }

  const FormatRow& format_;
  const int subs_;
  const int scales_;  // where they begin
  std::vector<TileField> fields_;
};

template <class Tiles>
constexpr TileLayout layout_of() {
  return {Tiles::most_subs, Tiles::code_bits, Tiles::scale_bytes};
}

}  // namespace

TileLayout tile_layout(Format format) {
  switch (format) {
    case Format::f16:
    case Format::bf16:
      return layout_of<dev::HalfTiles>();
    case Format::q4_0:
      return layout_of<dev::Q4_0Tiles>();
    case Format::q4_1:
      return layout_of<dev::Q4_1Tiles>();
    case Format::q5_0:
      return layout_of<dev::Q5_0Tiles>();
    case Format::q5_1:
      return layout_of<dev::Q5_1Tiles>();
    case Format::q8_0:
      return layout_of<dev::Q8_0Tiles>();
    case Format::q4_k:
      return layout_of<dev::Q4_KTiles>();
    case Format::q5_k:
      return layout_of<dev::Q5_KTiles>();
    case Format::q6_k:
      return layout_of<dev::Q6_KTiles>();
    case Format::q2_k:
      return layout_of<dev::Q2_KTiles>();
    case Format::q3_k:
      return layout_of<dev::Q3_KTiles>();
    case Format::iq4_nl:
      return layout_of<dev::IQ4_NLTiles>();
    case Format::iq4_xs:
      return layout_of<dev::IQ4_XSTiles>();
    case Format::mxfp4:
      return layout_of<dev::MXFP4Tiles>();
    default:
      return {};
  }
}

std::vector<TileField> tile_fields(Format format, int subs) {
  return FieldList(format, subs).take();
}

}  // namespace lathe
