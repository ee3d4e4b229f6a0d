// Owns what is the same in every recipe: the names of tensors, the tables of RoPE, the keys of
// norms, the step that takes a hidden state, and the steps that choose the next token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lathe/plan/plan.h"
#include "plan/selection.h"
#include "plan/step_list.h"

namespace lathe {

// "attn_q" in layer 3 is "blk.3.attn_q.weight"; in layer -1 it is "attn_q.weight".
std::string tensor_name(int layer, std::string_view label, std::string_view kind = "weight");

// The first step of a part that takes hidden states: from `input`, as from an embedding of one row,
// to the stream, which the steps may change.
struct HiddenStart {
  Operand input;
  Operand stream;
};
HiddenStart add_hidden_start(StepList& steps, const ModelSpec& spec);

// Positions that a token of a layer with this window, or with none where it is 0, sees at most.
int visible_positions(int window, int context);

// Of n vectors of k values.
KernelKey norm_key(Selector& selector, const ModelSpec& spec, int k, int n);

// One for each of the spec's ropes, in their order.
std::vector<Table> rope_tables(const ModelSpec& spec);

// From `vocab` logits to the sampled token.
void add_sampling(StepList& steps, Selector& selector, int vocab, const Operand& logits);

}  // namespace lathe
