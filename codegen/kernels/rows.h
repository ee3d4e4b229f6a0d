// Owns what the rows of the kernel table share: their declarations and small builders.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {

// One per file in this folder; kernel_table.cpp lists them in the order of the enum.
extern const KernelRow kRetileRow;
extern const KernelRow kEmbedRow;
extern const KernelRow kRmsNormRow;
extern const KernelRow kGemvRow;
extern const KernelRow kRopeRow;
extern const KernelRow kKvAppendRow;
extern const KernelRow kAttentionRow;
extern const KernelRow kAttentionMergeRow;
extern const KernelRow kGluRow;
extern const KernelRow kArgmaxRow;
extern const KernelRow kArgmaxMergeRow;
extern const KernelRow kElementwiseRow;
extern const KernelRow kLayerNormRow;
extern const KernelRow kSoftmaxRow;
extern const KernelRow kDequantizeRow;
extern const KernelRow kQuantizeRow;
extern const KernelRow kMatvecRow;
extern const KernelRow kAttendRow;
extern const KernelRow kTopKRow;
extern const KernelRow kSampleRow;
extern const KernelRow kNormTokensRow;
extern const KernelRow kMatmulRow;
extern const KernelRow kAppendTokensRow;
extern const KernelRow kAttendTokensRow;
extern const KernelRow kAttendRowsRow;
extern const KernelRow kGemmOperandRow;
extern const KernelRow kGemmRow;

template <typename... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::invalid_argument, fmt::format(text, std::forward<Args>(args)...), {}};
}

// A field in [low, high], or an error that says so.
Result<void> in_range(const char* field, int value, int low, int high);
// k is a positive multiple of the format's block.
Result<void> whole_blocks(const KernelKey& key);
// epsilon is a finite number, at least 0.
Result<void> check_epsilon(const KernelKey& key);
// An activation is set only where the operation is activate.
Result<void> check_activation(const KernelKey& key);
// Kernels with a block for each of n rows of k values: the limits of k, n and warps, and the
// launch, in which each of several warps leaves so many words for the others.
Result<void> check_rows(const KernelKey& key);
Geometry block_per_row(const KernelKey& key, int shared_words);
// The call of such an op: its pointers, then k, warps and a number.
OpCall row_call(const char* op, std::vector<OpArgument> pointers, const KernelKey& key,
                float number);
// The format has tiles, and so has a matrix of this key's n and k.
Result<void> has_tiles(const KernelKey& key);

using dev::ceil_div;

inline Param vector_in(const char* name, std::int64_t values, bool may_alias = false) {
  return {name, Access::read, Element::f32, values * 4, 16, false, may_alias};
}
// Of the model.
inline Param constant_in(const char* name, std::int64_t values) {
  Param constant = vector_in(name, values);
  constant.constant = true;
  return constant;
}
inline Param vector_out(const char* name, std::int64_t values) {
  return {name, Access::write, Element::f32, values * 4, 16, false, false};
}
// Operands of matmul for `tokens` tokens (ops/matmul_shapes.h): of many with rows for whole blocks
// of them, or, `few`, with room for operand_tokens() and their means.
Param operands_in(const char* name, bool few, int tokens, int k);
Param operands_out(const char* name, bool few, int tokens, int k);
// The token count by which operands for few tokens lie, where these are `few`; else 0.
int operand_tokens(bool few, int tokens);
// A chunk: how many tokens, the position of the first, the cache's row of position 0 or, of a cache
// in pages, the entry of the table that has it, and a word that nobody reads.
inline Param chunk_in() {
  Param chunk = {"chunk", Access::read, Element::i32, 16, 4};
  chunk.constant = true;
  return chunk;
}
// For each token of a batch its position, and the cache's row of its sequence's position 0, or the
// entry of the table that has it.
inline Param rows_in(int tokens) {
  return {"rows", Access::read, Element::i32, tokens * 8ll, 4};
}
// The pages of a KV cache that the positions of the sequences are in.
inline Param pages_in() {
  Param pages = {"pages", Access::read, Element::i32, 4, 4};
  pages.per_page = true;
  return pages;
}
// The name of an op whose KV cache has the key's format and layout.
std::string cache_op(const char* name, const KernelKey& key);
// A chunk's tokens in a key that is one of a chunk.
Result<void> has_tokens(const KernelKey& key);
// Operands in memory: `width` of each token, in the order that operand_tokens() says.
struct OperandRows {
  std::uint16_t* values;
  int width;
  int tokens;
  double get(int token, int i) const;
  void set(int token, int i, double value) const;
  // Of few tokens: the mean of the 16 operands from i on, which have been set.
  void set_mean(int token, int i) const;
  // Those of all of a token's operands; of many tokens nothing.
  void set_means(int token) const;
};

// A bit for each of `count` ids: id i is bit i % 32 of word i / 32.
inline std::int64_t token_set_bytes(int count) {
  return ceil_div(count, 32) * 4ll;
}
inline Param token_sets_in(const char* name, std::int64_t sets, int count) {
  return {name, Access::read, Element::i32, sets * token_set_bytes(count), 4};
}
// A null set has every id.
inline bool in_token_set(const std::uint32_t* set, std::int64_t id) {
  return !set || (set[id / 32] >> (id % 32) & 1) != 0;
}

inline Param position_in() {
  return {"position", Access::read, Element::i32, 4, 4, false, false};
}
inline Param blocks_param(const char* name, const Matrix& matrix, Access access) {
  return {name, access, Element::blocks, matrix.block_bytes(), 16, false, false, false, matrix};
}
inline Param blocks_in(const char* name, const KernelKey& key) {
  return blocks_param(name, {key.format, key.n, key.k}, Access::read);
}
// A matrix in tiles. The key has passed has_tiles().
Param tiles_param(const char* name, const Matrix& matrix, Access access);
// Of a KV cache, for a position: its keys, and the same again for its values.
std::int64_t position_bytes(const KernelKey& key);
inline Param cache(const char* name, const KernelKey& key, Access access) {
  return {name, access, Element::kv, position_bytes(key), 16, true, false};
}

inline OpArgument parameter(int index) {
  return {OpArgument::Kind::parameter, index, 0};
}
inline OpArgument null_argument() {
  return {OpArgument::Kind::null, 0, 0};
}
inline OpArgument integer(int value) {
  return {OpArgument::Kind::integer, value, 0};
}
inline OpArgument real(float value) {
  return {OpArgument::Kind::real, 0, value};
}

// Parameters 0 ... count-1, to be followed by constants.
std::vector<OpArgument> parameters(int count);
// The parameters that are there, one after the other, and null for the others.
std::vector<OpArgument> parameters_of(std::initializer_list<bool> there);

// One thread per element of `count`.
Geometry per_element(int count, int warps);

// Share `part` of `parts` of the range [0, count).
std::pair<std::int64_t, std::int64_t> share(std::int64_t count, int part, int parts);

// A float as the hand-over between blocks leaves it: without its lowest bit (ops/exchange.h).
inline double received(float value) {
  return static_cast<double>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & ~1u));
}

// Its name as it stands in names of ops.
const char* activation_name(Activation activation);
// What the oracles of gated kernels take for the activation of x: exact but for double precision.
double activated(double x, Activation activation);

inline const char* no_template(const KernelKey&) {
  return nullptr;
}

}  // namespace lathe
