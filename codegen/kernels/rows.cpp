// Owns the checks and builders that several rows of the kernel table use.
#include "codegen/kernels/rows.h"

#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/matmul_shapes.h"

namespace lathe {

Result<void> in_range(const char* field, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return invalid("{} is {}; it must be between {} and {}", field, value, low, high);
}

Result<void> whole_blocks(const KernelKey& key) {
  const FormatRow& format = row(key.format);
  LATHE_TRY(in_range("k", key.k, 1, 1 << 24));
  if (key.k % format.block == 0) return {};
  return invalid("k is {}; {} stores values in blocks of {}, and k must be a multiple of that",
                 key.k, format.name, format.block);
}

Result<void> has_tiles(const KernelKey& key) {
  LATHE_TRY(whole_blocks(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(tile_shape(key.format, key.n, key.k));
  return {};
}

Param tiles_param(const char* name, const Matrix& matrix, Access access) {
  const Result<TileShape> shape = tile_shape(matrix.format, matrix.n, matrix.k);
  return {name,  access, Element::tiles, shape ? shape->bytes() : 0, 16, false,
          false, false,  matrix};
}

namespace {
constexpr double kOperandFactor = 1.0 / 16;  // ops/matmul_shapes.h
}  // namespace

Param operands_in(const char* name, bool few, int tokens, int k) {
  Param x =
      operands_out(name, few, few ? tokens : dev::round_up(tokens, int{dev::kMatmulTokens}), k);
  x.access = Access::read;
  return x;
}
Param operands_out(const char* name, bool few, int tokens, int k) {
  const int width = dev::operand_width(k);
  const std::int64_t values =
      few ? dev::few_operands(width, operand_tokens(few, tokens)) : std::int64_t{tokens} * width;
  return {name, Access::write, Element::f16, values * 2, 16};
}
Result<void> has_tokens(const KernelKey& key) {
  return in_range("tokens", key.tokens, 1, kMostChunkTokens);
}
static_assert(kPagePositions == int{dev::kPagePositions}, "what keys and ops call a page");
std::int64_t position_bytes(const KernelKey& key) {
  if (key.atoms > 0) return std::int64_t{key.kv_heads} * key.terms * 4;
  return kv_position_bytes(key.format, std::int64_t{key.kv_heads} * key.head_dim);
}
std::string cache_op(const char* name, const KernelKey& key) {
  if (key.atoms > 0) return fmt::format("{}_atoms", name);
  return fmt::format("{}_{}{}", name, row(key.format).name, key.paged ? "_paged" : "");
}
int operand_tokens(bool few, int tokens) {
  return few ? dev::few_tokens(tokens) : 0;
}
double OperandRows::get(int token, int i) const {
  const std::uint16_t bits = values[dev::operand_place(token, i, width, tokens)];
  return static_cast<double>(f16_to_f32(bits)) / kOperandFactor;
}
void OperandRows::set(int token, int i, double value) const {
  values[dev::operand_place(token, i, width, tokens)] =
      f32_to_f16(static_cast<float>(value * kOperandFactor));
}

void OperandRows::set_mean(int token, int i) const {
  float sum = 0;
  for (int next = i; next < i + 16; ++next)
    sum += f16_to_f32(values[dev::operand_place(token, next, width, tokens)]);
  values[dev::operand_mean_place(token, i, width, tokens)] = f32_to_f16(sum / 16);
}
void OperandRows::set_means(int token) const {
  for (int i = 0; tokens > 0 && i < width; i += 16) set_mean(token, i);
}

Result<void> check_rows(const KernelKey& key) {
  LATHE_TRY(in_range("k", key.k, 1, 1 << 24));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 20));
  return in_range("warps", key.warps, 1, 32);
}

Geometry block_per_row(const KernelKey& key, int shared_words) {
  return {.grid_x = static_cast<unsigned>(key.n),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = key.warps > 1 ? static_cast<unsigned>(key.warps * shared_words * 4) : 0u};
}

OpCall row_call(const char* op, std::vector<OpArgument> pointers, const KernelKey& key,
                float number) {
  OpCall call{fmt::format("ops/{}.h", op), op, std::move(pointers)};
  call.arguments.push_back(integer(key.k));
  call.arguments.push_back(integer(key.warps));
  call.arguments.push_back(real(number));
  return call;
}

Result<void> check_epsilon(const KernelKey& key) {
  if (!(key.epsilon >= 0))
    return invalid("epsilon is {}; it must be a finite number, at least 0", key.epsilon);
  return {};
}

Result<void> check_activation(const KernelKey& key) {
  if (key.activation != Activation::silu && key.operation != Operation::activate)
    return invalid("an activation is that of activate; operation must be that");
  return {};
}

std::vector<OpArgument> parameters_of(std::initializer_list<bool> there) {
  std::vector<OpArgument> out;
  int next = 0;
  for (const bool passed : there) out.push_back(passed ? parameter(next++) : null_argument());
  return out;
}

std::vector<OpArgument> parameters(int count) {
  std::vector<OpArgument> out;
  for (int i = 0; i < count; ++i) out.push_back(parameter(i));
  return out;
}

Geometry per_element(int count, int warps) {
  const int threads = warps * 32;
  return {.grid_x = static_cast<unsigned>(ceil_div(count, threads)),
          .threads = static_cast<unsigned>(threads)};
}

std::pair<std::int64_t, std::int64_t> share(std::int64_t count, int part, int parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

}  // namespace lathe
