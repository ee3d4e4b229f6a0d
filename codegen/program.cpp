// Owns the making of a persistent kernel's source from the keys of a token's steps.
#include "lathe/codegen/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <future>
#include <system_error>

#include "codegen/back_edges.h"
#include "codegen/joined_ptx.h"
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/matvec.h"
#include "codegen/program_shape.h"
#include "codegen/routes.h"
#include "codegen/stopwatch.h"
#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {
namespace {

constexpr const char* kEntry = "lathe_persistent";

Error refused(std::string why) {
  return {Code::not_eligible, "no persistent kernel: " + why, {}};
}

template <class List>
void add_distinct(List& list, const KernelKey& key) {
  if (std::find(list.begin(), list.end(), key) == list.end()) list.push_back(key);
}

dev::PersistentLayout layout(const Program& program) {
  return dev::persistent_layout(program.warps, program.stages, program.slot_bytes,
                                tile_columns(program), program.entries, attend_bytes(program),
                                program.together);
}

// Sub-blocks per tile when all matrices have the same, else 0: then it is data.
int common_subs(const Program& program) {
  int common = -1;
  for (const KernelKey& key : program.matvecs) {
    const auto shape = tile_shape(key.format, key.n, key.k);
    const int subs = shape ? shape->subs : 0;
    if (common < 0) common = subs;
    if (common != subs) return 0;
  }
  return std::max(common, 0);
}

std::string features(const Program& program) {
  std::uint32_t formats = 0;
  bool joins = false;
  for (const KernelKey& key : program.matvecs) {
    for (const auto& [format, n] : matrices(key))
      if (n > 0) formats |= 1u << tile_number(format);
    joins |= key.joined;
  }
  return fmt::format("0x{:x}u{}", formats, joins ? " | kJoins" : "");
}

std::string real(float value) {
  return fmt::format("as_f32(0x{:08x}u /* {} */)", std::bit_cast<std::uint32_t>(value), value);
}

const char* cache_rows(Format format) {
  return format == Format::f32 ? "KvRowsF32" : format == Format::f16 ? "KvRowsF16" : "KvRowsQ8";
}

std::string attend_numbers(const KernelKey& key) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}", key.heads, key.kv_heads,
                     key.head_dim, key.rotary, key.pairing == Pairing::halves ? 1 : 0, key.window,
                     key.splits, real(key.epsilon), real(key.scale), key.qk_norm ? 1 : 0);
}

// For each attention of the program, what `statement` says of its key.
template <class Statement>
std::string for_each_variant(const Program& program, Statement statement) {
  std::string out;
  for (std::size_t i = 0; i < program.attends.size(); ++i) {
    const KernelKey& key = program.attends[i];
    out += fmt::format("    // {}\n    if (variant == {})\n{}", key.text(), i, statement(key));
  }
  return out;
}

std::string attend_blocks_text(const Program& program) {
  return for_each_variant(program,
                          [&](const KernelKey& key) {
                            return fmt::format(
                                "      return lathe::dev::attend_blocks<{}>(\n"
                                "          {}, position, {});\n",
                                cache_rows(key.format), attend_numbers(key), program.blocks);
                          }) +
         "    return 0;\n";
}

std::string attend_text(const Program& program) {
  return for_each_variant(program, [&](const KernelKey& key) {
    return fmt::format(
        "      attend_phase<{}, {}, {}>({{1, tag, fault}}, o,\n"
        "                       {},\n"
        "                       position, block, {}, {}, scratch);\n",
        cache_rows(key.format), key.matrix, attend_shape(key).padded, attend_numbers(key),
        program.blocks, program.warps);
  });
}

// Attention by the matrix units has all registers there are: with no barrier before the call the
// assembler spills some of the phases'.
int meets_first(const Program& program) {
  return std::ranges::any_of(program.attends, &KernelKey::matrix) ? 1 : 0;
}

std::string embed_text(const KernelKey& key) {
  const bool tiles = key.layout == Layout::tiles;
  const auto shape = tile_shape(key.format, key.n, key.k);
  return fmt::format("    // {}\n    embed_{}{}_share(e, table, token, y, index, {}, {}, {}{});\n",
                     key.text(), tiles ? "tiles_" : "", row(key.format).name, key.k, key.n,
                     tiles && shape ? fmt::format("{}, ", shape->subs) : "", real(key.scale));
}

// Attention and the rest at the same time, since NVRTC takes as long for the one as for the other.
// The text is that of the whole source.
Result<std::string> compile_in_parts(const Program& program, const std::string& source,
                                     const Target& target, const Nvrtc& nvrtc) {
  const char* what = "the persistent kernel";
  if (program.attends.empty()) return nvrtc_compile(source, what, target, nvrtc);
  const auto compile_attention = [&] {
    return nvrtc_compile("#define LATHE_ATTENTION_ALONE\n" + source,
                         "the persistent kernel's attention", target, nvrtc);
  };
  std::future<Result<std::string>> attending;
  try {
    attending = std::async(std::launch::async, compile_attention);
  } catch (const std::system_error&) {
    attending = std::async(std::launch::deferred, compile_attention);  // it only takes longer
  }
  Result<std::string> frame =
      nvrtc_compile("#define LATHE_FRAME_ALONE\n" + source, what, target, nvrtc, true);
  LATHE_ASSIGN(const std::string attention, attending.get());
  if (!frame) return frame;
  return joined_ptx(*frame, attention);
}

}  // namespace

int tile_columns(const Program& program) {
  int most = 0;
  for (const KernelKey& key : program.matvecs)
    if (const auto shape = tile_shape(key.format, key.n, key.k))
      most = std::max(most, shape->tiles_per_row);
  return most;
}

int attend_bytes(const Program& program) {
  int most = 0;
  for (const KernelKey& key : program.attends)
    most = std::max(most, static_cast<int>(row(key.type).geometry(key).shared_bytes));
  return most;
}

std::string Program::text() const {
  std::string out = fmt::format("persistent.bl{}.w{}.st{}.slot{}.steps{}.entries{} {}", blocks,
                                warps, stages, slot_bytes, steps, entries, embed.text());
  for (const KernelKey& key : attends) out += " " + key.text();
  for (const KernelKey& key : matvecs) out += " " + key.text();
  return out;
}

Geometry Program::geometry() const {
  return {.grid_x = static_cast<unsigned>(blocks),
          .threads = static_cast<unsigned>(warps * 32),
          .shared_bytes = static_cast<unsigned>(layout(*this).bytes)};
}

std::span<const KernelKey> persistent_steps(std::span<const KernelKey> steps) {
  while (!steps.empty() && steps.back().type != KernelType::matvec)
    steps = steps.first(steps.size() - 1);
  return steps;
}

KernelKey phase_key(KernelKey step) {
  step.early = false;
  return step;
}

Result<Program> make_program(std::span<const KernelKey> steps) {
  Program program;
  program.steps = static_cast<int>(steps.size());
  if (steps.empty() || steps.front().type != KernelType::embed)
    return refused("the steps do not begin with the embedding");
  program.embed = phase_key(steps.front());
  for (const KernelKey& step : steps.subspan(1)) {
    const KernelKey key = phase_key(step);
    if (key.type == KernelType::attend) {
      add_distinct(program.attends, key);
    } else if (key.type == KernelType::matvec) {
      if (!program.matvecs.empty() && tiles_together(key) != program.together)
        return refused("some of its phases multiply tiles in pairs and some do not");
      add_distinct(program.matvecs, key);
      program.together = tiles_together(key);
      for (const auto& [format, n] : matrices(key)) program.entries += n > 0 ? 1 : 0;
      program.slot_bytes = std::max(program.slot_bytes, matvec_slot_bytes(key));
      program.blocks = key.blocks;
      program.warps = key.warps;
    } else {
      return refused("it has no phase " + key.text());
    }
  }
  if (program.matvecs.empty()) return refused("there is no matrix");
  for (const KernelKey& key : program.attends)
    if (key.matrix && key.warps != program.warps)
      return refused(
          fmt::format("{} has other warps than the products, {}", key.text(), program.warps));
  const Geometry embeds = row(program.embed.type).geometry(program.embed);
  if (embeds.grid_x * embeds.threads > unsigned(program.blocks * program.warps * 32))
    return refused(
        fmt::format("its {} blocks have fewer threads than the embedding takes", program.blocks));
  if (program.steps < 3) return refused("there are fewer than three steps");
  for (program.stages = kMaxStages; program.stages > 0; --program.stages)
    if (layout(program).bytes <= kMostSharedBytes) return program;
  return refused(fmt::format("its blocks need {} bytes of shared memory, more than {}",
                             layout(program).bytes, kMostSharedBytes));
}

Result<std::string> cuda_source(const Program& program) {
  const bool tiles = program.embed.layout == Layout::tiles;
  return fmt::format(
      "#ifdef LATHE_ATTENTION_ALONE\n#include \"ops/attend.h\"\n"
      "#else\n#include \"ops/{}.h\"\n#include \"ops/persistent.h\"\n#endif\n\n"
      "using namespace lathe::dev;\n\n"
      "struct Phases {{\n"
      // Not inlined: it would take the registers of the phases that stream weights.
      "  static __device__ __noinline__ void attend(int variant, u32 tag, u32* fault, int block,\n"
      "      u8* scratch, const AttendOperands& o, int position)\n"
      "#ifdef LATHE_FRAME_ALONE\n  ;\n#else\n  {{\n{}  }}\n#endif\n"
      "#ifndef LATHE_ATTENTION_ALONE\n"
      "  enum : u32 {{ features = {} }};\n"
      "  enum : int {{ subs = {}, together = {}, meets_first = {} }};\n"
      "  static __device__ __forceinline__ int attend_blocks(int variant, int position) {{\n{}  "
      "}}\n"
      "  static __device__ __forceinline__ void embed(const u8* table, const i32* token, int "
      "index,\n"
      "      const Exchange& e, f32* y) {{\n{}  }}\n"
      "#endif\n"
      "}};\n\n"
      "#ifdef LATHE_ATTENTION_ALONE\n"
      // It is never launched, and its text is left out: it shows the compiler, as the persistent
      // kernel does, that what attend() is handed lies in shared memory.
      "extern \"C\" __global__ void __launch_bounds__({}, 1)\n"
      "lathe_attends(int variant, u32 tag, u32* fault, int scratch, int o, int position) {{\n"
      "  u8* shared = shared_memory();\n"
      "  Phases::attend(variant, tag, fault, block_x(), shared + scratch,\n"
      "                 *reinterpret_cast<const AttendOperands*>(shared + o), position);\n"
      "}}\n"
      "#else\n"
      "extern \"C\" __global__ void __launch_bounds__({}, 1)\n"
      "{}(const StepRecord* steps, const StreamEntry* entries, TokenControl* control,\n"
      "    PersistentState* state, u64* candidates, i32* history, i32* recent,\n"
      "    const StopTokens* stops, int tokens, int chooses) {{\n"
      "  run_persistent<Phases>({{steps, entries, control, state, candidates, history, recent,\n"
      "                          stops}},\n"
      "                         {{{}, {}, {}, {}, {}, {}, {}, {}}}, tokens, chooses);\n"
      "}}\n"
      "#endif\n",
      tiles ? "embed_tiles" : "embed", attend_text(program), features(program),
      common_subs(program), program.together, meets_first(program), attend_blocks_text(program),
      embed_text(program.embed), program.warps * 32, program.warps * 32, kEntry, program.steps,
      program.entries, program.blocks, program.warps, program.stages, program.slot_bytes,
      tile_columns(program), attend_bytes(program));
}

Result<void> program_fits(const Program& program, const Target& target) {
  for (const KernelKey& key : program.matvecs)
    if (const auto covered = target_covers(key, target); !covered)
      return refused(covered.error().message);
  return {};
}

Result<Ptx> emit_program(const Program& program, const Target& target, const Compilers& compilers) {
  LATHE_TRY(program_fits(program, target));
  LATHE_ASSIGN(const Nvrtc* nvrtc, load_nvrtc(compilers.state()));
  const Stopwatch emitting;
  LATHE_ASSIGN(const std::string source, cuda_source(program));
  Ptx ptx;
  ptx.entry = kEntry;
  ptx.geometry = program.geometry();
  ptx.route = Route::nvrtc;
  ptx.target = target;
  ptx.compiler = nvrtc->version;
  LATHE_ASSIGN(std::string body, compile_in_parts(program, source, target, *nvrtc));
  ptx.text = fmt::format("// {}\n// target {}, route nvrtc ({})\n\n{}", program.text(),
                         target.name(), ptx.compiler, for_assembler(std::move(body), target));
  ptx.milliseconds = emitting.milliseconds();
  return ptx;
}

}  // namespace lathe
