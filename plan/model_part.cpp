// Owns which parts a model has.
#include "plan/model_part.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace lathe {

Result<ModelPart> resolve_part(ModelPart part, const ModelSpec& spec) {
  const auto refused = [](std::string why) {
    return Error{Code::invalid_argument, "no such part of the model: " + std::move(why), {}};
  };
  if (part.first_layer < 0 || part.first_layer >= spec.layers || part.layers < 0 ||
      part.layers > spec.layers - part.first_layer)
    return refused(fmt::format("{}layers from {} on, and the model has {}",
                               part.layers ? fmt::format("{} ", part.layers) : "", part.first_layer,
                               spec.layers));
  if (part.layers == 0) part.layers = spec.layers - part.first_layer;
  if (part.first_layer > 0 && part.input == PartInput::token)
    return refused(fmt::format("layer {} takes no token, but a hidden state", part.first_layer));
  const bool one_block = part.blocks != PartBlocks::both;
  if (one_block &&
      (part.layers != 1 || part.input != PartInput::hidden || part.output != PartOutput::hidden))
    return refused("blocks of one kind are of one layer, from a hidden state to a hidden state");
  if (!one_block && !part.residual) return refused("both blocks of a layer without the residual");
  return part;
}

}  // namespace lathe
