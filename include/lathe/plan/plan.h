// Owns the plan: the fixed list of kernel launches that turns one token into logits, with every
// buffer placed, before any device is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/sampling.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/gpu_profile.h"
#include "lathe/plan/model_spec.h"
#include "lathe/plan/part.h"

namespace lathe {

// Ids that end a run of tokens.
struct StopTokens {
  static constexpr int kMost = 8;
  std::int32_t count = 0;
  std::int32_t ids[kMost] = {};
  bool operator==(const StopTokens&) const = default;
};

// State that changes from token to token, in device memory, so that one recorded graph serves
// every token. Kernels take pointers to its fields.
struct ControlBlock {
  std::int32_t token = 0;     // to be decoded now
  std::int32_t position = 0;  // of that token: entries already in the KV cache
  std::int32_t sampled = 0;   // written by sample; -1 when every logit is NaN
  std::int32_t reserved = 0;
  SamplingState sampling;
  StopTokens stops;

  // The end of a token: it becomes a recent one, and the sampled one, if there is one, the next.
  void advance() {
    sampling.recent[static_cast<std::size_t>(position % kMaxRepeatLast)] = token;
    token = sampled < 0 ? 0 : sampled;
    ++position;
  }
};

enum class Place : std::uint8_t {
  weight,    // index into Plan::weights
  table,     // index into Plan::tables
  scratch,   // byte offset into the arena
  kv_k,      // K cache of layer `index`
  kv_v,      // V cache of layer `index`, laid out as K: [position][kv_heads][head_dim]
  control,   // byte offset into the ControlBlock
  counters,  // byte offset into words that are 0 before the first token
  pages,     // the table of pages of a KV cache that lies in pages: i32, sequences x pages of each
};

struct Operand {
  Place place = Place::scratch;
  int index = 0;            // weight, table or layer
  std::int64_t offset = 0;  // bytes, for scratch and control
  // The operand's size; 0 for KV caches and their table: see kv_bytes_per_layer().
  std::int64_t bytes = 0;
};

// One launch. operands[i] is the kernel's parameter i (see KernelRow::params). Steps run in order,
// and no step reads scratch bytes that an earlier step of the same token has not written.
struct Step {
  KernelKey key;
  std::vector<Operand> operands;
  int layer = -1;     // -1: before or after the layers
  std::string label;  // "attn_q": what the step is in the model
};

struct WeightSlot {
  std::string name;             // of the tensor in the file
  Layout layout = Layout::raw;  // in device memory; hosts read the file's blocks
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t file_offset = 0;
  std::int64_t bytes = 0;  // in the file

  std::int64_t device_bytes() const;
  KernelKey retile_key() const;  // of the kernel that makes its tiles
};

// Constants computed when the plan is built (RoPE frequencies), uploaded like weights.
struct Table {
  std::string name;
  std::vector<float> values;
};

// How many kernels a layer is cut into.
enum class Fusion : std::uint8_t {
  automatic,  // full where the model and the GPU allow it; else none
  none,       // one for each operation, weights as the file's blocks; any format, any shape
  full,       // five, on weights in tiles: qkv, attention, output, gate and up, down
};

// A KV cache by a dictionary: a key or a value of a head is kept as a sum of atoms, a word for
// each, chosen when it is appended (docs/services.md).
struct KvAtoms {
  int count = 0;  // of a table, 1 to 65536; 0: keys and values are kept as PlanOptions::kv says
  int terms = 8;  // atoms of a sum, 1 to 64
  // Atoms of head_dim floats, each 1 long: `count` for all layers, or `count` for the keys and as
  // many for the values of each layer of the part in turn. Empty: the axes, then random directions,
  // always the same, which know nothing of the model.
  std::vector<float> values = {};
};

inline constexpr int kMostBlocks = 1024;
inline constexpr int kMostSequences = 4096;
inline constexpr int kDefaultContext = 4096;  // or what the model was trained for, if that is less

struct PlanOptions {
  Fusion fusion = Fusion::automatic;
  GpuProfile gpu = {};  // that it is for; a session takes its device's
  // In place of the GPU's multiprocessors, 1 to kMostBlocks; 0 = as `tuning` has it, else as many
  // as there are.
  int blocks = 0;
  // What is set in place of a choice, with commas between: "gemv.warps=4,matvec.stages=6,
  // fusion=none". `lathe variables` and docs/tuning.md have all names. `executor` and `fusion`
  // count where they are left to be chosen. Empty: a session takes LATHE_TUNING.
  std::string tuning = {};
  // The same words, but those that were measured to be fast (lathe/plan/measured_tunings.h): each
  // counts where `tuning` has not its name, and is left out of a kernel that cannot have it.
  // Nothing: a session on a GPU takes them from the table of tunings.
  std::optional<std::string> measured = {};
  // Positions the KV cache holds, at most what the model was trained for; 0 = kDefaultContext.
  int context = 0;
  // f32, or f16 in half the memory. f16 rounds keys and values to 11 bits, which moves the logits
  // of small models by up to 5e-3 (docs/accuracy.md); with f32 they stay within 1e-4 of exact.
  Format kv = Format::f32;
  int attention_splits = 0;  // 1 to 64; 0 = chosen from heads and visible positions
  // Sequences that the KV cache has room for, 1 to 4096, each of `context` positions: all of these,
  // or with kv_pages the pages that they would take, are fewer than 2^31. A session has one, a
  // batch several.
  int sequences = 1;
  // Above 0: the KV cache is so many pages of kPagePositions positions, which a batch hands out as
  // its sequences grow, and no fewer bytes than the table of them (Plan::page_table_bytes). 0:
  // `context` positions in a row for each sequence, as sessions have it.
  int kv_pages = 0;
  // Tokens of a prompt that a GPU session with Fusion::full reads at once, 1 to 8192; 0 = none, a
  // prompt is read token by token, as it is by a part of a model.
  int chunk = 512;
  ModelPart part = {};
  // In place of `kv`. For a session whose kernels have one operation each: no fused plan has it, no
  // batch, and prompts are read token by token.
  KvAtoms atoms = {};
};

// Exact per-token figures, except those of attention, which are per position it sees. Operands in
// the arena, the tables and the control block count as activations.
struct PlanCounts {
  int launches = 0;
  int distinct_kernels = 0;
  std::int64_t weight_bytes_read = 0;
  std::int64_t kv_bytes_per_position = 0;  // K and V of all layers: written once, read by attention
  std::int64_t activation_bytes_read = 0;
  std::int64_t activation_bytes_written = 0;
  std::int64_t operations = 0;  // of everything but attention
  std::int64_t attention_operations_per_position = 0;
};

struct Plan {
  ModelSpec spec;  // of the part: its layers are those of options.part
  PlanOptions options;
  std::vector<Step> steps;
  std::vector<WeightSlot> weights;
  std::vector<Table> tables;
  std::vector<std::string> notes;  // why a choice left to the plan fell as it did
  std::vector<Selected> choices;   // what was chosen for its kernels, and why
  std::int64_t arena_bytes = 0;
  std::int64_t counter_bytes = 0;
  // In the arena, each without bytes where there is none. A part that takes hidden states has them
  // written to `input`, hidden f32 values, before the first step. After the last step there are
  // vocab f32 logits, and the residual stream before the output norm, hidden f32 values.
  Operand input;
  Operand logits;
  Operand hidden;
  bool whole = true;  // from a token to logits, with all layers

  // "f16"; "sums of 8 of 1024 atoms".
  std::string kv_text() const;
  // The table that a layer's keys, or its values, have their atoms from. -1 without atoms.
  int atom_table(int layer, bool of_values) const;
  // Of a layer's K, and the same again of its V.
  std::int64_t kv_bytes_per_position() const;
  std::int64_t kv_bytes_per_layer() const;
  std::int64_t kv_positions() const;  // that a layer's cache has room for, of all sequences
  // Of a KV cache in pages: what a whole sequence has, which is its share of the table; the table.
  int pages_per_sequence() const;
  std::int64_t page_table_bytes() const;  // 0 without pages
  // Bytes of K and V that attention reads in all layers when it sees `length` positions, windows
  // respected.
  std::int64_t kv_bytes_read(int length) const;
  // Of the steps from `first` on, in their order.
  std::vector<KernelKey> distinct_keys(std::size_t first = 0) const;
  PlanCounts counts() const;
  std::string to_text() const;
  std::string to_json() const;
};

// Builds and checks the plan: every tensor present with the right shape and a supported format, no
// tensor left unread, every key valid. Immutable afterwards.
Result<Plan> build_plan(const GgufFile& file, const ModelSpec& spec, const PlanOptions& options);
Result<Plan> build_plan(const GgufFile& file, const PlanOptions& options);

// How a session reads a prompt: the launches that bring the keys and values of up to
// plan.options.chunk tokens into the KV cache. The last token of a prompt is decoded.
struct PrefillPlan {
  Plan plan;      // weights, tables and KV cache are the decoding plan's, scratch is its own
  Operand chunk;  // i32 in its arena, written before the first step: a PrefillChunk
};
// What a chunk is: this, then as many tokens as there are.
struct PrefillChunk {
  std::int32_t tokens = 0;
  std::int32_t position = 0;  // of the first
  // Where position 0 of the sequence is: a row of the KV caches, in pages an entry of the table.
  std::int32_t first_row = 0;
  std::int32_t reserved = 0;
};

// From a decoding plan. `grouped`: its kernels are for sm_90a (KernelKey::grouped). not_eligible:
// why its prompts are to be read token by token.
Result<PrefillPlan> build_prefill_plan(const Plan& plan, bool grouped);

// How a batch decodes one token for each of several sequences, or some tokens in a row of one: the
// launches for up to `rows` tokens, each with a sequence and a position of its own.
inline constexpr int kMostBatchRows = 32;

// Where a token of a batch is: its position in its sequence, and the row of the KV caches that
// holds that sequence's position 0; in pages, the entry of the table.
struct BatchPlace {
  std::int32_t position = 0;
  std::int32_t first_row = 0;
};
// What the host writes before the steps, and reads after them, one after the other: a PrefillChunk
// whose `tokens` say how many rows there are; for each row its token, its place, its sampling
// state; then what was sampled.
struct BatchShape {
  int rows = 0;

  std::int64_t places_at() const { return std::int64_t(sizeof(PrefillChunk)) + padded() * 4; }
  std::int64_t sampling_at() const {
    return places_at() + padded() * std::int64_t(sizeof(BatchPlace));
  }
  std::int64_t sampled_at() const {
    return sampling_at() + padded() * std::int64_t(sizeof(SamplingState));
  }
  std::int64_t bytes() const { return sampled_at() + padded() * 4; }

 private:
  std::int64_t padded() const { return (rows + 3) / 4 * 4; }  // what follows is 16-byte aligned
};
struct BatchPlan {
  Plan plan;     // weights, tables and KV cache are the decoding plan's; logits: rows x vocab
  Operand head;  // in its arena, as BatchShape says
  BatchShape shape;
};

// From a decoding plan. not_eligible: why its model has no batches.
Result<BatchPlan> build_batch_plan(const Plan& plan, int rows);

// For each step the earlier steps it must wait for, without those that others among them wait for
// already. Steps with no path between them may run at the same time: q, k and v, gate and up.
std::vector<std::vector<int>> step_dependencies(const Plan& plan);

// RoPE table of a spec: for each pair i the frequency in revolutions per position as a float pair
// (high, low), interleaved, so that a kernel finds the angle of any position to f32 accuracy. All
// of head_dim rotates when the spec has no dims.
std::vector<float> rope_table(const RopeSpec& rope, int head_dim);

}  // namespace lathe
