// Owns the steps of a plan while it is built: operands by kind, scratch buffers without a place
// until the last step is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/plan/plan.h"
#include "plan/weight_list.h"

namespace lathe {

class StepList {
 public:
  // A new scratch buffer of f32 values. Until finish(), the operand's index is the buffer's number
  // and its offset one within the buffer.
  Operand scratch(std::int64_t values);
  static Operand weight(const WeightList& weights, int index);
  static Operand table(const std::vector<Table>& tables, int index);
  static Operand kv_k(int layer) { return {Place::kv_k, layer, 0, 0}; }
  static Operand kv_v(int layer) { return {Place::kv_v, layer, 0, 0}; }
  static Operand pages() { return {Place::pages, 0, 0, 0}; }
  static Operand token();
  static Operand position();
  static Operand sampled();
  static Operand sampling();
  Operand counters(int count);

  void add(int layer, std::string label, KernelKey key, std::vector<Operand> operands);

  // What a plan takes before its first step and has after its last one: scratch operands, or none.
  struct Ends {
    Operand input;
    Operand logits;
    Operand hidden;
  };
  // Places every buffer, moves the steps into the plan and gives its ends places that no step
  // overwrites while they matter. Without `reuse` no buffer shares memory with another.
  void finish(Plan& plan, const Ends& ends, bool reuse = true) &&;

 private:
  std::vector<Step> steps_;
  std::vector<std::int64_t> buffers_;  // bytes
  std::int64_t counter_bytes_ = 0;
};

}  // namespace lathe
