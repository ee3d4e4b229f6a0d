// Owns which part of a model a plan is of.
#pragma once

#include <cstdint>

namespace lathe {

enum class PartInput : std::uint8_t {
  token,   // an id, whose row of the embedding is the residual stream
  hidden,  // the residual stream itself, f32: before the norm of the part's first block
};
enum class PartOutput : std::uint8_t {
  logits,  // of the head, after the output norm; a token is chosen
  hidden,  // the residual stream after the part's last block: no logits, and nothing is chosen
};
enum class PartBlocks : std::uint8_t { both, attention, ffn };

// The whole model, unless told otherwise. A part that begins behind layer 0 takes hidden states,
// and one with blocks of one kind is of one layer, from hidden to hidden; what makes no sense is
// refused when the plan is built. A part has weights and KV caches of its own layers alone, which
// are numbered from 0 where keys and values are read or written.
struct ModelPart {
  int first_layer = 0;
  int layers = 0;  // from first_layer on; 0: all that there are
  PartInput input = PartInput::token;
  PartOutput output = PartOutput::logits;
  PartBlocks blocks = PartBlocks::both;
  // Of blocks of one kind. False: what the block adds to the stream, and not their sum.
  bool residual = true;

  bool operator==(const ModelPart&) const = default;
};

}  // namespace lathe
