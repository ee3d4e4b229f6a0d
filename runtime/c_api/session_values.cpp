// Owns what the C functions about sessions and batches have in common.
#include "runtime/c_api/session_values.h"

#include "plan/kv_atoms.h"

namespace lathe::c_api {
namespace {

Result<ExecutorKind> executor_of(std::int32_t number) {
  switch (number) {
    case LATHE_EXECUTOR_DEFAULT:
    case LATHE_EXECUTOR_GRAPH:
      return ExecutorKind::graph;
    case LATHE_EXECUTOR_EAGER:
      return ExecutorKind::eager;
    case LATHE_EXECUTOR_MEGA:
      return ExecutorKind::mega;
    case LATHE_EXECUTOR_CPU:
      return ExecutorKind::cpu;
    case LATHE_EXECUTOR_AUTO:
      return ExecutorKind::automatic;
  }
  return unknown_number("executor", number);
}

Result<Fusion> fusion_of(std::int32_t number) {
  switch (number) {
    case LATHE_FUSION_AUTOMATIC:
      return Fusion::automatic;
    case LATHE_FUSION_NONE:
      return Fusion::none;
    case LATHE_FUSION_FULL:
      return Fusion::full;
  }
  return unknown_number("fusion", number);
}

// What a number of two says.
template <typename T>
Result<T> either(const char* what, std::int32_t number, T zero, T one) {
  if (number != 0 && number != 1) return unknown_number(what, number);
  return number == 0 ? zero : one;
}

Result<ModelPart> part_of(const lathe_model_part* given) {
  ModelPart part;
  if (!given) return part;
  LATHE_ASSIGN(const lathe_model_part wanted, read_optional_struct(given, "lathe_model_part"));
  part.first_layer = wanted.first_layer;
  part.layers = wanted.layers;
  LATHE_ASSIGN(part.input, either("input", wanted.input, PartInput::token, PartInput::hidden));
  LATHE_ASSIGN(part.output,
               either("output", wanted.output, PartOutput::logits, PartOutput::hidden));
  if (wanted.blocks == LATHE_BLOCKS_ATTENTION)
    part.blocks = PartBlocks::attention;
  else if (wanted.blocks == LATHE_BLOCKS_FFN)
    part.blocks = PartBlocks::ffn;
  else if (wanted.blocks != LATHE_BLOCKS_BOTH)
    return unknown_number("blocks", wanted.blocks);
  LATHE_ASSIGN(part.residual, either("no_residual", wanted.no_residual, true, false));
  return part;
}

// Of options that have their part already. No value is read before it is known how many the model
// takes.
Result<void> take_atoms(const lathe_kv_atoms* given, const ModelObject& model,
                        PlanOptions& options) {
  if (!given) return {};
  LATHE_ASSIGN(const lathe_kv_atoms wanted, read_optional_struct(given, "lathe_kv_atoms"));
  if (wanted.count < 1)
    return Error{Code::invalid_argument,
                 fmt::format("A KV cache of {} atoms makes no sense.", wanted.count),
                 {}};
  if (!wanted.values && wanted.value_count > 0)
    return Error{Code::invalid_argument, "The values of atoms are null.", {}};
  options.atoms.count = wanted.count;
  if (wanted.terms != 0) options.atoms.terms = wanted.terms;
  if (wanted.value_count == 0) return {};
  if (!model.spec) return model.spec.error();
  LATHE_TRY(check_atom_values(options, *model.spec, wanted.value_count));
  options.atoms.values.assign(wanted.values, wanted.values + wanted.value_count);
  return {};
}

DeviceWeights device_weights_of(lathe_device_weights weights, void* user) {
  if (!weights) return {};
  return [=](std::string_view tensor, Layout layout, std::int64_t bytes) {
    return weights(user, std::string(tensor).c_str(),
                   layout == Layout::tiles ? LATHE_ELEMENT_TILES : LATHE_ELEMENT_BLOCKS, bytes);
  };
}

}  // namespace

Result<Format> kv_format_of(std::int32_t number) {
  switch (number) {
    case LATHE_KV_F32:
      return Format::f32;
    case LATHE_KV_F16:
      return Format::f16;
    case LATHE_KV_Q8_0:
      return Format::q8_0;
  }
  return unknown_number("KV format", number);
}

Result<SessionOptions> session_options_of(const lathe_session_options& given,
                                          const ModelObject& model) {
  SessionOptions options;
  LATHE_ASSIGN(options.executor, executor_of(given.executor));
  LATHE_ASSIGN(options.plan.fusion, fusion_of(given.fusion));
  LATHE_ASSIGN(options.plan.kv, kv_format_of(given.kv_format));
  options.plan.context = given.context;
  options.plan.attention_splits = given.attention_splits;
  if (given.chunk != 0) options.plan.chunk = given.chunk == -1 ? 0 : given.chunk;
  if (given.wait_limit_ms < -1)
    return Error{Code::invalid_argument,
                 fmt::format("A wait limit of {} ms makes no sense.", given.wait_limit_ms),
                 {}};
  options.wait_limit = std::chrono::milliseconds(given.wait_limit_ms);
  options.plan.tuning = text_or_empty(given.tuning);
  options.threads = given.threads;
  if (given.device) {
    LATHE_ASSIGN(const DeviceObject* device, find<DeviceObject>(given.device));
    options.kernels = device->device;
  }
  options.stream = given.stream;
  options.device_weights = device_weights_of(given.weights, given.weights_user);
  LATHE_ASSIGN(options.plan.part, part_of(given.part));
  LATHE_TRY(take_atoms(given.atoms, model, options.plan));
  options.parity = given.parity;
  LATHE_ASSIGN(options.time_steps, either("time_steps", given.time_steps, false, true));
  options.progress = progress_of(given.progress, given.progress_user);
  options.cancelled = cancelled_of(given.cancel, given.cancel_user);
  return options;
}

Sampling sampling_of(const lathe_sampling& given) {
  Sampling rules;
  rules.temperature = given.temperature;
  rules.top_k = given.top_k;
  if (given.top_p != 0) rules.top_p = given.top_p;
  rules.min_p = given.min_p;
  if (given.repeat_penalty != 0) rules.repeat_penalty = given.repeat_penalty;
  if (given.repeat_last != 0) rules.repeat_last = given.repeat_last;
  rules.seed = given.seed;
  return rules;
}

lathe_session_info session_info_of(const SessionReport& report, const Plan& plan, int launches) {
  return {.struct_size = 0,
          .device = report.device.c_str(),
          .executor = report.executor.c_str(),
          .routes = report.routes.c_str(),
          .assembler = report.assembler.c_str(),
          .vocabulary = plan.spec.vocab,
          .context = plan.options.context,
          .launches = launches,
          .kernels_built = report.kernels_built,
          .kernels_from_cache = report.kernels_from_cache,
          .note_count = std::int32_t(report.notes.size()),
          .build_seconds = report.build_seconds,
          .upload_seconds = report.upload_seconds,
          .weight_bytes = report.weight_bytes,
          .kv_bytes = report.kv_bytes,
          .scratch_bytes = report.scratch_bytes,
          .chunk = report.chunk,
          .layers = plan.spec.layers,
          .kv_heads = plan.spec.kv_heads,
          .head_dim = plan.spec.head_dim,
          .borrowed_bytes = report.borrowed_bytes,
          .hidden = plan.spec.hidden,
          .submissions = report.submissions,
          .bytes_to_device = report.bytes_to_device,
          .bytes_to_host = report.bytes_to_host,
          .graph_key = report.graph_key.c_str(),
          .tuning = report.tuning.c_str(),
          .parity = report.parity,
          .choice_count = std::int32_t(report.choices.size()),
          .kv_pages = report.kv_pages,
          .kv_pages_used = report.kv_pages_used,
          .reserved = 0,
          .build_wait_seconds = report.build_wait_seconds};
}

Result<lathe_choice> choice_of(const SessionReport& report, std::int32_t index) {
  if (index < 0 || std::size_t(index) >= report.choices.size())
    return unknown_number("choice", index);
  const Selected& choice = report.choices[std::size_t(index)];
  return lathe_choice{.struct_size = 0,
                      .what = choice.what.c_str(),
                      .value = choice.value.c_str(),
                      .reason = choice.reason.c_str(),
                      .set = choice.set};
}

Result<const char*> note_of(const SessionReport& report, std::int32_t index) {
  if (index < 0 || std::size_t(index) >= report.notes.size()) return unknown_number("note", index);
  return report.notes[std::size_t(index)].c_str();
}

std::int32_t number_of_kv_format(Format format) {
  if (format == Format::f16) return LATHE_KV_F16;
  return format == Format::q8_0 ? LATHE_KV_Q8_0 : LATHE_KV_F32;
}

Result<TokenSet> token_set_of(const std::uint32_t* allowed, std::int32_t words) {
  LATHE_TRY(check_array(allowed, "allowed", words));
  return TokenSet(allowed, std::size_t(words));
}

Result<KvRange> kv_range_of(const lathe_kv_range* range) {
  LATHE_NOT_NULL(range);
  if (range->part != LATHE_PART_KEYS && range->part != LATHE_PART_VALUES)
    return unknown_number("part", range->part);
  return KvRange{range->part == LATHE_PART_KEYS ? KvPart::keys : KvPart::values, range->layer,
                 range->first, range->positions};
}

}  // namespace lathe::c_api
