// Owns what is the same in every recipe.
#include "plan/recipe.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {

std::string tensor_name(int layer, std::string_view label, std::string_view kind) {
  return layer < 0 ? fmt::format("{}.{}", label, kind)
                   : fmt::format("blk.{}.{}.{}", layer, label, kind);
}

HiddenStart add_hidden_start(StepList& steps, const ModelSpec& spec) {
  KernelKey key{.type = KernelType::embed};
  key.k = spec.hidden;
  key.n = 1;  // whatever the token is, there is no other row
  const HiddenStart start{steps.scratch(spec.hidden), steps.scratch(spec.hidden)};
  steps.add(-1, "hidden", key, {start.input, StepList::token(), start.stream});
  return start;
}

int visible_positions(int window, int context) {
  return window > 0 ? std::min(window, context) : context;
}

KernelKey norm_key(Selector& selector, const ModelSpec& spec, int k, int n) {
  KernelKey key{.type = KernelType::rms_norm};
  key.k = k;
  key.n = n;
  key.epsilon = spec.epsilon;
  return selector.tuned(key);
}

std::vector<Table> rope_tables(const ModelSpec& spec) {
  std::vector<Table> tables;
  for (const RopeSpec& rope : spec.ropes)
    tables.push_back({fmt::format("rope{}", tables.size()), rope_table(rope, spec.head_dim)});
  return tables;
}

void add_sampling(StepList& steps, Selector& selector, int vocab, const Operand& logits) {
  KernelKey key{.type = KernelType::top_k};
  key.n = vocab;
  key = selector.tuned(key);
  const Operand partial = steps.scratch(std::int64_t{2} * kMaxTopK * key.splits);
  steps.add(-1, "top_k", key,
            {logits, StepList::token(), StepList::position(), StepList::sampling(), partial});
  KernelKey sample{.type = KernelType::sample};
  sample.splits = key.splits;
  sample = selector.tuned(sample);
  steps.add(-1, "sample", sample,
            {partial, StepList::position(), StepList::sampling(), StepList::sampled()});
}

}  // namespace lathe
