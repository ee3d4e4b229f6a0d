// Owns the name of a kernel: its type and every number its code is specialized to.
//
// A KernelKey is a plain value. Its text() is the only spelling of a kernel anywhere: cache entry,
// PTX entry point, dump file, error subject, benchmark label. It never holds anything that changes
// from token to token (position, cached length): those are read from device memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lathe/codegen/format.h"
#include "lathe/codegen/result.h"

namespace lathe {

// Families, not variants: a variant is a field of the key.
enum class KernelType : std::uint8_t {
  retile,           // weights from the blocks of the file to tiles
  embed,            // y[k] = scale * table[token]
  rms_norm,         // y = x / rms(x) * w, per row of k values, with optional residual
  gemv,             // y[n] = W[n][k] . x[k], with optional bias and residual
  rope,             // rotary position embedding, in place, on heads x head_dim values
  kv_append,        // stores one position's K and V
  attention,        // one query position against the KV cache; one partial result per split
  attention_merge,  // combines the splits
  glu,              // y = activation(gate) * up
  argmax,           // greatest of n values and its index, per split; not in plans, for embedders
  argmax_merge,     // index of the greatest over the splits, as argmax leaves them
  elementwise,      // for embedders, as all down to quantize: y = scale * operation(x, b)
  layer_norm,       // y = (x - mean) / deviation * w (+ bias), per row of k values
  softmax,          // y = e^(scale x) over its sum, per row of k values
  dequantize,       // n rows of k weights as numbers
  quantize,         // n vectors of k values as blocks
  matvec,         // up to three matrices of tiles times one vector, with norm, bias, residual, GLU
  attend,         // norm and rotation of q and k, append to the KV cache and attention in one
  top_k,          // the 64 greatest logits after the repeat penalty, per split
  sample,         // the next token, drawn from those of all splits
  norm_tokens,    // f16 operands of a chunk's tokens: x / rms(x) * w, or joined to the stream first
  matmul,         // up to three matrices of tiles times the operands of a chunk's tokens
  append_tokens,  // norm and rotation of a chunk's q and k, append to the KV cache
  attend_tokens,  // causal attention of a chunk's tokens
  attend_rows,    // attention of a batch's tokens, each over its own sequence
  gemm_operand,   // n rows of k numbers as an operand of gemm
  gemm,           // y[tokens][n] = X W^T of dense rows; not in plans, for embedders
};

// Which elements RoPE rotates together: (2i, 2i+1) or (i, i + dims/2).
enum class Pairing : std::uint8_t { adjacent, halves };
enum class Activation : std::uint8_t { silu, gelu_tanh, gelu_erf, relu };
enum class Operation : std::uint8_t { copy, add, multiply, activate };

// How weights lie in device memory: as the file's blocks, or as tiles (lathe/codegen/tile.h).
enum class Layout : std::uint8_t { raw, tiles };

// The most stages that plans and persistent kernels choose; a kernel takes up to 16.
inline constexpr int kMaxStages = 8;

// The most tokens of a chunk.
inline constexpr int kMostChunkTokens = 8192;

// Positions of a page of a KV cache that lies in pages. Page p is positions 16 p and on of the
// cache; a table has an i32 for each page of a sequence, in the order of its positions.
inline constexpr int kPagePositions = 16;
constexpr int pages_of(int positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}
// Where a position is in the cache, counted in positions; `pages`: the sequence's part of a table.
constexpr std::int64_t row_in_pages(const std::int32_t* pages, int position) {
  return std::int64_t{pages[position / kPagePositions]} * kPagePositions +
         position % kPagePositions;
}

// Of a KV cache by a dictionary: atoms of a table, whose numbers are 16 bits of a word, and words
// of a key or a value.
inline constexpr int kMostAtoms = 65536;
inline constexpr int kMostTerms = 64;

struct KernelKey {
  KernelType type = KernelType::gemv;
  Format format = Format::f32;  // weights; of the KV cache; quantize: of the result

  // Shape. Fields a family does not use (KernelRow::fields) stay at their default.
  int k = 0;         // values per row (reduction, norm); elementwise: of b, repeated, 0 = n
  int n = 0;         // rows (outputs, vocabulary, elements)
  int heads = 0;     // query heads, or rows of a per-head operation
  int kv_heads = 0;  // heads of the KV cache; divides heads
  int head_dim = 0;  // values per head
  int rotary = 0;    // leading values of each head that RoPE rotates
  int window = 0;    // attention sees the last `window` positions; 0 = all
  // matvec: up to two more matrices of k columns, 0 rows for those that are not there. format_b is
  // also that of gemv's x (f32, f16, q8_1, q8_k; with weights of f64 x is f64), of the numbers
  // dequantize makes and of those gemm_operand takes.
  int n_b = 0;
  int n_c = 0;
  Format format_b = Format::f32;
  Format format_c = Format::f32;
  int tokens = 1;  // of a chunk, at most; gemm: rows of x
  // kv_append, attention: keys and values are sums of `terms` atoms, numbers of `format`, each out
  // of a table of `atoms`; 0 = they are numbers themselves.
  int atoms = 0;
  int terms = 0;

  // Tuning: any valid value gives the same result within the kernel's bound.
  int warps = 4;  // warps per block
  int rows = 1;   // rows per warp
  // That share the work: matvec; attend_rows, 0 = enough; matmul with few tokens, 0 = it has many;
  // gemm, 0 = one for each tile.
  int blocks = 0;
  // matvec: tiles under way per warp, or pairs of tiles. matmul with blocks: tile columns under way
  // of a block that has a multiprocessor to itself; 1 = as many as leave room for another block.
  int stages = 1;
  // Parts the context (attention; attend: most) or the vocabulary is cut into; matmul with blocks:
  // warps that share k.
  int splits = 1;
  bool grouped = false;  // matmul, gemm: four warps multiply together, which only sm_90a can
  // matvec: a warp multiplies two neighbouring tiles at once. matmul with blocks: it has two row
  // tiles, of a gate and its up if it is gated.
  bool paired = false;
  bool matrix = false;  // attend, attend_rows: by the matrix units, from a cache of f16
  // The kernel may be launched before those that it follows have ended: it waits for them itself,
  // before it touches what they do, and lets those that follow it be launched before it ends.
  bool early = false;

  // Meaning.
  float epsilon = 0;    // rms_norm, layer_norm, norms in attend
  float scale = 1;      // embed, elementwise: factor on the result; attention, softmax: on scores
  bool scaled = false;  // gemv: each row has a factor, which comes after the product
  bool bias = false;
  bool residual = false;
  bool gated = false;    // matvec: n and n_b are gate and up, y = activation(gate) * up
  bool norm = false;     // matvec: x is normed first, with weights
  bool joined = false;   // matvec: x is normed and added to the residual stream before that
  bool qk_norm = false;  // attend: q and k are normed per head before they rotate
  bool batched = false;  // a batch, whose tokens have sequences of their own, not a chunk of one
  bool paged = false;    // of a KV cache: it lies in pages of kPagePositions, which a table names
  bool masked = false;   // argmax, top_k: a bit for each value says whether it may be chosen
  Pairing pairing = Pairing::adjacent;
  Activation activation = Activation::silu;
  Operation operation = Operation::copy;  // elementwise; gemm: copy or activate
  Layout layout = Layout::raw;

  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;

  // "gemv.q4_k.k4096.n14336.w4": type, format, then every field that differs from its default.
  std::string text() const;
  // text() as a PTX identifier: '.' and '-' become '_'.
  std::string symbol() const;
};

// The inverse of text(). The error names the part that does not parse.
Result<KernelKey> parse_key(std::string_view text);

// How a field is spelled. One table serves text(), parse_key(), hashing and command lines.
struct KeyField {
  const char* name;     // "warps": long name, for command lines
  const char* tag;      // "w": short name, for text()
  const char* meaning;  // one line for --help
  int KernelKey::*integer = nullptr;
  float KernelKey::*real = nullptr;
  bool KernelKey::*flag = nullptr;
  Pairing KernelKey::*pairing = nullptr;
  Activation KernelKey::*activation = nullptr;
  Operation KernelKey::*operation = nullptr;
  Layout KernelKey::*layout = nullptr;
  Format KernelKey::*format = nullptr;
};
std::span<const KeyField> key_fields();
bool is_default(const KernelKey& key, const KeyField& field);

// Sets one field from text, by its long name: ("warps", "4"), ("bias", "1"), ("pairing", "halves").
Result<void> set_field(KernelKey& key, std::string_view name, std::string_view value);

std::size_t hash_value(const KernelKey& key);

}  // namespace lathe

template <>
struct std::hash<lathe::KernelKey> {
  std::size_t operator()(const lathe::KernelKey& key) const { return lathe::hash_value(key); }
};
