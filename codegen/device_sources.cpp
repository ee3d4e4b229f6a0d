// Owns the embedding of ptx_templates: each file's bytes, by the assembler's .incbin.
#include "codegen/device_sources.h"

#include <array>

// One line per file; the symbol is made from the line's first argument. Of the templates those that
// several share come last.
#define LATHE_DEVICE_SOURCES(FILE)                     \
  FILE(isa_device, "isa/device.h")                     \
  FILE(isa_device_async, "isa/device_async.h")         \
  FILE(isa_device_group, "isa/device_group.h")         \
  FILE(isa_device_mma, "isa/device_mma.h")             \
  FILE(isa_isa, "isa/isa.h")                           \
  FILE(isa_shape_math, "isa/shape_math.h")             \
  FILE(isa_types, "isa/types.h")                       \
  FILE(ops_activations, "ops/activations.h")           \
  FILE(ops_append_tokens, "ops/append_tokens.h")       \
  FILE(ops_argmax, "ops/argmax.h")                     \
  FILE(ops_attend, "ops/attend.h")                     \
  FILE(ops_attend_fragments, "ops/attend_fragments.h") \
  FILE(ops_attend_matrix, "ops/attend_matrix.h")       \
  FILE(ops_attend_merge, "ops/attend_merge.h")         \
  FILE(ops_attend_pages, "ops/attend_pages.h")         \
  FILE(ops_attend_rows, "ops/attend_rows.h")           \
  FILE(ops_attend_shapes, "ops/attend_shapes.h")       \
  FILE(ops_attend_short, "ops/attend_short.h")         \
  FILE(ops_attend_tokens, "ops/attend_tokens.h")       \
  FILE(ops_attend_vectors, "ops/attend_vectors.h")     \
  FILE(ops_attention, "ops/attention.h")               \
  FILE(ops_candidates, "ops/candidates.h")             \
  FILE(ops_dequantize, "ops/dequantize.h")             \
  FILE(ops_dequantize_tiles, "ops/dequantize_tiles.h") \
  FILE(ops_elementwise, "ops/elementwise.h")           \
  FILE(ops_embed, "ops/embed.h")                       \
  FILE(ops_embed_tiles, "ops/embed_tiles.h")           \
  FILE(ops_exchange, "ops/exchange.h")                 \
  FILE(ops_format_units, "ops/format_units.h")         \
  FILE(ops_formats, "ops/formats.h")                   \
  FILE(ops_gemm, "ops/gemm.h")                         \
  FILE(ops_gemm_f64, "ops/gemm_f64.h")                 \
  FILE(ops_gemm_grouped, "ops/gemm_grouped.h")         \
  FILE(ops_gemm_operand, "ops/gemm_operand.h")         \
  FILE(ops_gemm_plain, "ops/gemm_plain.h")             \
  FILE(ops_gemm_shapes, "ops/gemm_shapes.h")           \
  FILE(ops_gemm_tile, "ops/gemm_tile.h")               \
  FILE(ops_gemv, "ops/gemv.h")                         \
  FILE(ops_gemv_dot, "ops/gemv_dot.h")                 \
  FILE(ops_gemv_f64, "ops/gemv_f64.h")                 \
  FILE(ops_glu, "ops/glu.h")                           \
  FILE(ops_k_formats, "ops/k_formats.h")               \
  FILE(ops_kv_atoms, "ops/kv_atoms.h")                 \
  FILE(ops_kv_cache, "ops/kv_cache.h")                 \
  FILE(ops_kv_pages, "ops/kv_pages.h")                 \
  FILE(ops_kv_rows, "ops/kv_rows.h")                   \
  FILE(ops_launch_shapes, "ops/launch_shapes.h")       \
  FILE(ops_math, "ops/math.h")                         \
  FILE(ops_layer_norm, "ops/layer_norm.h")             \
  FILE(ops_matmul, "ops/matmul.h")                     \
  FILE(ops_matmul_block, "ops/matmul_block.h")         \
  FILE(ops_matmul_few, "ops/matmul_few.h")             \
  FILE(ops_matmul_many, "ops/matmul_many.h")           \
  FILE(ops_matmul_meet, "ops/matmul_meet.h")           \
  FILE(ops_matmul_rows, "ops/matmul_rows.h")           \
  FILE(ops_matmul_shapes, "ops/matmul_shapes.h")       \
  FILE(ops_matvec, "ops/matvec.h")                     \
  FILE(ops_norm_tokens, "ops/norm_tokens.h")           \
  FILE(ops_persistent, "ops/persistent.h")             \
  FILE(ops_phase, "ops/phase.h")                       \
  FILE(ops_phase_rows, "ops/phase_rows.h")             \
  FILE(ops_phase_vector, "ops/phase_vector.h")         \
  FILE(ops_q8_formats, "ops/q8_formats.h")             \
  FILE(ops_quantize, "ops/quantize.h")                 \
  FILE(ops_random, "ops/random.h")                     \
  FILE(ops_retile, "ops/retile.h")                     \
  FILE(ops_rms_norm, "ops/rms_norm.h")                 \
  FILE(ops_rope, "ops/rope.h")                         \
  FILE(ops_sample, "ops/sample.h")                     \
  FILE(ops_sampling, "ops/sampling.h")                 \
  FILE(ops_softmax, "ops/softmax.h")                   \
  FILE(ops_step_records, "ops/step_records.h")         \
  FILE(ops_table_formats, "ops/table_formats.h")       \
  FILE(ops_tile_dot, "ops/tile_dot.h")                 \
  FILE(ops_tile_halves, "ops/tile_halves.h")           \
  FILE(ops_tile_dot_half, "ops/tile_dot_half.h")       \
  FILE(ops_tile_dot_runs, "ops/tile_dot_runs.h")       \
  FILE(ops_tile_operands, "ops/tile_operands.h")       \
  FILE(ops_tile_pair, "ops/tile_pair.h")               \
  FILE(ops_tile_shapes, "ops/tile_shapes.h")           \
  FILE(ops_token_set, "ops/token_set.h")               \
  FILE(ops_top_k, "ops/top_k.h")                       \
  FILE(ops_weight_stream, "ops/weight_stream.h")
#define LATHE_TEMPLATE_SOURCES(FILE)                                 \
  FILE(ptx_argmax, "ptx/argmax.ptx")                                 \
  FILE(ptx_argmax_merge, "ptx/argmax_merge.ptx")                     \
  FILE(ptx_attention, "ptx/attention.ptx")                           \
  FILE(ptx_attention_merge, "ptx/attention_merge.ptx")               \
  FILE(ptx_embed, "ptx/embed.ptx")                                   \
  FILE(ptx_gemv_q4_k, "ptx/gemv_q4_k.ptx")                           \
  FILE(ptx_gemv_q5_0, "ptx/gemv_q5_0.ptx")                           \
  FILE(ptx_gemv_q6_k, "ptx/gemv_q6_k.ptx")                           \
  FILE(ptx_gemv_q8_0, "ptx/gemv_q8_0.ptx")                           \
  FILE(ptx_glu, "ptx/glu.ptx")                                       \
  FILE(ptx_kv_append, "ptx/kv_append.ptx")                           \
  FILE(ptx_rms_norm, "ptx/rms_norm.ptx")                             \
  FILE(ptx_rope, "ptx/rope.ptx")                                     \
  FILE(ptx_sample, "ptx/sample.ptx")                                 \
  FILE(ptx_top_k, "ptx/top_k.ptx")                                   \
  FILE(ptx_parts_activation, "ptx/parts/activation.ptx")             \
  FILE(ptx_parts_attention_values, "ptx/parts/attention_values.ptx") \
  FILE(ptx_parts_begin_rows, "ptx/parts/begin_rows.ptx")             \
  FILE(ptx_parts_best_of_warp, "ptx/parts/best_of_warp.ptx")         \
  FILE(ptx_parts_block_merged, "ptx/parts/block_merged.ptx")         \
  FILE(ptx_parts_candidate, "ptx/parts/candidate.ptx")               \
  FILE(ptx_parts_candidate_value, "ptx/parts/candidate_value.ptx")   \
  FILE(ptx_parts_compared, "ptx/parts/compared.ptx")                 \
  FILE(ptx_parts_exponential, "ptx/parts/exponential.ptx")           \
  FILE(ptx_parts_finish_rows, "ptx/parts/finish_rows.ptx")           \
  FILE(ptx_parts_first_place, "ptx/parts/first_place.ptx")           \
  FILE(ptx_parts_greatest_of_warp, "ptx/parts/greatest_of_warp.ptx") \
  FILE(ptx_parts_merged, "ptx/parts/merged.ptx")                     \
  FILE(ptx_parts_q4_k_scales, "ptx/parts/q4_k_scales.ptx")           \
  FILE(ptx_parts_recent_token, "ptx/parts/recent_token.ptx")         \
  FILE(ptx_parts_row_of_warp, "ptx/parts/row_of_warp.ptx")           \
  FILE(ptx_parts_running_sums, "ptx/parts/running_sums.ptx")

#define LATHE_EMBED(symbol, path)              \
  asm(".section .rodata\n"                     \
      ".global lathe_source_" #symbol          \
      "\n"                                     \
      ".global lathe_source_" #symbol          \
      "_end\n"                                 \
      ".hidden lathe_source_" #symbol          \
      "\n"                                     \
      ".hidden lathe_source_" #symbol          \
      "_end\n"                                 \
      "lathe_source_" #symbol                  \
      ":\n"                                    \
      ".incbin \"" LATHE_TEMPLATE_DIR "/" path \
      "\"\n"                                   \
      "lathe_source_" #symbol                  \
      "_end:\n"                                \
      ".byte 0\n"                              \
      ".previous\n");                          \
  extern "C" const char lathe_source_##symbol[], lathe_source_##symbol##_end[];
LATHE_DEVICE_SOURCES(LATHE_EMBED)
LATHE_TEMPLATE_SOURCES(LATHE_EMBED)
#undef LATHE_EMBED

namespace lathe {

std::span<const SourceFile> device_sources() {
#define LATHE_ENTRY(symbol, path)                                                          \
  SourceFile{path, std::string_view(lathe_source_##symbol,                                 \
                                    static_cast<std::size_t>(lathe_source_##symbol##_end - \
                                                             lathe_source_##symbol))},
  static const std::array sources = {LATHE_DEVICE_SOURCES(LATHE_ENTRY)
                                         LATHE_TEMPLATE_SOURCES(LATHE_ENTRY)};
#undef LATHE_ENTRY
  return sources;
}

std::string_view device_source(std::string_view name) {
  for (const SourceFile& file : device_sources())
    if (file.name == name) return file.text;
  return {};
}

}  // namespace lathe
