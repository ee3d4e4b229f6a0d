// Owns what is the same in every recipe: the names of tensors, the tables of RoPE, and the steps
// that choose the next token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lathe/plan/plan.h"
#include "plan/step_list.h"

namespace lathe {

// "attn_q" in layer 3 is "blk.3.attn_q.weight"; in layer -1 it is "attn_q.weight".
std::string tensor_name(int layer, std::string_view label, std::string_view kind = "weight");

// One for each of the spec's ropes, in their order.
std::vector<Table> rope_tables(const ModelSpec& spec);

// From `vocab` logits to the sampled token.
void add_sampling(StepList& steps, int vocab, const Operand& logits);

}  // namespace lathe
