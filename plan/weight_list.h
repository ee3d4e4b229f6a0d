// Owns the list of tensors a plan reads: found by name, checked, each listed once.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"

namespace lathe {

class WeightList {
 public:
  explicit WeightList(const GgufFile& file) : file_(file) {}

  // A matrix of n rows of k values in any known format.
  Result<int> matrix(const std::string& name, std::int64_t n, std::int64_t k);
  // A vector of k f32 values.
  Result<int> vector(const std::string& name, std::int64_t k);

  const WeightSlot& operator[](int index) const { return slots_[static_cast<std::size_t>(index)]; }
  void set_layout(int index, Layout layout) {
    slots_[static_cast<std::size_t>(index)].layout = layout;
  }
  std::vector<WeightSlot> take() && { return std::move(slots_); }

 private:
  Result<int> add(const std::string& name, std::int64_t n, std::int64_t k);

  const GgufFile& file_;
  std::vector<WeightSlot> slots_;
  std::unordered_map<std::string, int> index_;
};

}  // namespace lathe
