// Owns the kernel table: the rows of codegen/kernels/ in the order of the enum.
#include "lathe/codegen/kernel_table.h"

#include <array>
#include <cmath>

#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

const std::array kTable = {
    kRetileRow,      kEmbedRow,       kRmsNormRow,        kGemvRow,         kRopeRow,
    kKvAppendRow,    kAttentionRow,   kAttentionMergeRow, kGluRow,          kArgmaxRow,
    kArgmaxMergeRow, kElementwiseRow, kLayerNormRow,      kSoftmaxRow,      kDequantizeRow,
    kQuantizeRow,    kMatvecRow,      kAttendRow,         kTopKRow,         kSampleRow,
    kNormTokensRow,  kMatmulRow,      kAppendTokensRow,   kAttendTokensRow, kAttendRowsRow,
    kGemmOperandRow, kGemmRow,
};

constexpr const char* kRoutes[] = {"nvrtc", "llvm", "text"};

bool has_word(std::string_view all, std::string_view word) {
  for (std::size_t at = all.find(word); at != std::string_view::npos; at = all.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || all[at - 1] == ' ') && (end == all.size() || all[end] == ' ')) return true;
  }
  return false;
}

// Two keys for one kernel would be two kernels; a key with NaN is not even equal to itself.
Result<void> check_fields(const KernelKey& key) {
  const KernelRow& kernel = row(key.type);
  if (!kernel.covers(key.format))
    return invalid("{} has no kernels of {}; its formats are: {}", kernel.name,
                   row(key.format).name, kernel.formats);
  for (const KeyField& field : key_fields()) {
    if (field.real && !std::isfinite(key.*field.real))
      return invalid("{} is {}; it must be a finite number", field.name, key.*field.real);
    if (!is_default(key, field) && !kernel.uses(field.name))
      return invalid("{} has no {}; its fields are: {}", kernel.name, field.name, kernel.fields);
  }
  return {};
}

}  // namespace

bool KernelRow::uses(std::string_view field) const {
  return has_word(fields, field);
}

bool KernelRow::covers(Format format) const {
  return formats == std::string_view(kAnyFormat) || has_word(formats, lathe::row(format).name);
}

std::span<const KernelRow> kernel_table() {
  return kTable;
}

const KernelRow& row(KernelType type) {
  return kTable[static_cast<std::size_t>(type)];
}

Result<KernelType> kernel_type_by_name(std::string_view name) {
  std::string known;
  for (const KernelRow& kernel : kTable) {
    if (name == kernel.name) return kernel.type;
    known += fmt::format(" {}", kernel.name);
  }
  return invalid("kernel '{}' is not known; known:{}", name, known);
}

const char* route_name(Route route) {
  return kRoutes[static_cast<std::size_t>(route)];
}

Result<Route> route_by_name(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kRoutes); ++i)
    if (name == kRoutes[i]) return static_cast<Route>(i);
  return invalid("route '{}' is not known; known: nvrtc llvm text", name);
}

double error_bound(const KernelKey& key) {
  const KernelRow& kernel = row(key.type);
  return kernel.key_bound ? kernel.key_bound(key) : kernel.bound;
}

Result<void> check_key(const KernelKey& key) {
  Result<void> result = check_fields(key);
  if (result) result = row(key.type).check(key);
  if (!result) return std::move(result).error().with("key", key.text());
  return result;
}

bool is_constant(const KernelKey& key, const Param& param) {
  if (param.access != Access::read || param.may_alias) return false;
  return !key.early || param.constant || param.element == Element::tiles;
}

bool waits_at_once(const KernelKey& key, const OpCall& call) {
  return key.early && !call.waits;
}

Result<void> route_covers(const KernelKey& key, Route route) {
  if (route != Route::text || (!key.early && row(key.type).text_template(key))) return {};
  return Error{
      Code::not_eligible,
      fmt::format("no PTX text template covers {}; take the nvrtc or llvm route", key.text()),
      {{"key", key.text()}}};
}

Instructions instructions_of(const KernelKey& key) {
  const KernelRow& kernel = row(key.type);
  Instructions needed;
  if (kernel.key_instructions) needed = kernel.key_instructions(key);
  if (needed.compute < kernel.min_compute) {
    needed.compute = kernel.min_compute;
    needed.what = kernel.min_compute_reason;
  }
  if (key.early && needed.compute < kEarlyCompute) {
    needed.compute = kEarlyCompute;
    needed.what = "waiting for the kernels before";
  }
  if (key.early) needed.ptx = std::max(needed.ptx, 78);
  return needed;
}

Result<void> target_covers(const KernelKey& key, const Target& target) {
  const KernelRow& kernel = row(key.type);
  if (key.grouped && !multiplies_in_groups(target))
    return Error{Code::not_eligible,
                 fmt::format("{} has no products of four warps: sm_90a alone does", target.name()),
                 {{"key", key.text()}, {"target", target.name()}}};
  const Instructions needed = instructions_of(key);
  if (target.compute >= needed.compute) return {};
  return Error{Code::not_eligible,
               fmt::format("{} has no {}, which came with sm_{} and which {} is made of",
                           target.name(), needed.what, needed.compute, kernel.name),
               {{"key", key.text()}, {"target", target.name()}}};
}

}  // namespace lathe
