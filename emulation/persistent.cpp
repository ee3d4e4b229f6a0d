// Owns the program of a persistent kernel as host code: what codegen/program.cpp writes as source,
// with the shapes as data.
#include "emulation/persistent.h"

#include <cstdio>
#include <sstream>

#include "codegen/program_shape.h"
#include "emulation/emulator.h"
#include "isa/host.h"
#include "lathe/codegen/program.h"
#include "lathe/codegen/tile.h"
#include "ops/embed_tiles.h"
#include "ops/persistent.h"

namespace lathe::emulation {
namespace {

// The program that runs. Fibers stay on the thread that launched them.
thread_local const Program* running = nullptr;

// Formats of embeddings that may be in tiles, and of all.
// clang-format off
#define LATHE_TILED_FORMATS(X) \
  X(f16) X(bf16) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q4_k) X(q5_k) X(q6_k) X(q2_k) X(q3_k) \
  X(iq4_nl) X(iq4_xs) X(mxfp4)
#define LATHE_FORMATS(X) \
  LATHE_TILED_FORMATS(X) X(f32) X(q8_1) X(q8_1_tail) X(q8_k) X(q4_k_soa) X(fp8_e4m3) X(ternary) X(f64)
// clang-format on

void embed_raw(const dev::Exchange& e, const dev::u8* table, const dev::i32* token, float* y,
               int index, const KernelKey& key) {
  switch (key.format) {
#define LATHE_CASE(format) \
  case Format::format:     \
    return dev::embed_##format##_share(e, table, token, y, index, key.k, key.n, key.scale);
    LATHE_FORMATS(LATHE_CASE)
#undef LATHE_CASE
    default:
      return;
  }
}

void embed_tiles(const dev::Exchange& e, const dev::u8* table, const dev::i32* token, float* y,
                 int index, const KernelKey& key) {
  const int subs = tile_shape(key.format, key.n, key.k)->subs;
  switch (key.format) {
#define LATHE_CASE(format)                                                                  \
  case Format::format:                                                                      \
    return dev::embed_tiles_##format##_share(e, table, token, y, index, key.k, key.n, subs, \
                                             key.scale);
    LATHE_TILED_FORMATS(LATHE_CASE)
#undef LATHE_CASE
    default:
      return;
  }
}

template <int kTogether>
struct Phases {
  static constexpr dev::u32 features = ((1u << dev::kTileFormats) - 1) | dev::kJoins;
  static constexpr int subs = 0, together = kTogether;
  static constexpr bool meets_first = false;

  static dev::AttendNumbers numbers(const KernelKey& key) {
    return {
        key.heads,  key.kv_heads, key.head_dim, key.rotary, key.pairing == Pairing::halves ? 1 : 0,
        key.window, key.splits,   key.epsilon,  key.scale,  key.qk_norm ? 1 : 0};
  }

  // use(rows) with the rows of the cache's format.
  template <class Use>
  static auto with_rows(Format format, Use use) {
    if (format == Format::f32) return use(dev::KvRowsF32{});
    if (format == Format::f16) return use(dev::KvRowsF16{});
    return use(dev::KvRowsQ8{});
  }

  static int attend_blocks(int variant, int position) {
    const KernelKey& key = running->attends.at(static_cast<std::size_t>(variant));
    return with_rows(key.format, [&]<class Rows>(Rows) {
      return dev::attend_blocks<Rows>(numbers(key), position, running->blocks);
    });
  }

  static void attend(int variant, dev::u32 tag, dev::u32* fault, int block, dev::u8* scratch,
                     const dev::AttendOperands& o, int position) {
    const KernelKey& key = running->attends.at(static_cast<std::size_t>(variant));
    if (key.matrix)
      return dev::attend_phase<dev::KvRowsF16, true>({1, tag, fault}, o, numbers(key), position,
                                                     block, running->blocks, running->warps,
                                                     scratch);
    with_rows(key.format, [&]<class Rows>(Rows) {
      dev::attend_phase<Rows>({1, tag, fault}, o, numbers(key), position, block, running->blocks,
                              running->warps, scratch);
    });
  }

  static void embed(const dev::u8* table, const dev::i32* token, int index, const dev::Exchange& e,
                    float* y) {
    const KernelKey& key = running->embed;
    if (key.layout == Layout::tiles)
      embed_tiles(e, table, token, y, index, key);
    else
      embed_raw(e, table, token, y, index, key);
  }
};

Result<Program> parse(const std::string& text) {
  Program program;
  std::istringstream words(text);
  std::string word;
  words >> word;
  if (std::sscanf(word.c_str(), "persistent.bl%d.w%d.st%d.slot%d.steps%d.entries%d",
                  &program.blocks, &program.warps, &program.stages, &program.slot_bytes,
                  &program.steps, &program.entries) != 6)
    return Error{Code::invalid_argument, "no program: " + text, {}};
  while (words >> word) {
    LATHE_ASSIGN(const KernelKey key, parse_key(word));
    if (key.type == KernelType::embed) program.embed = key;
    if (key.type == KernelType::attend) program.attends.push_back(key);
    if (key.type == KernelType::matvec) {
      program.matvecs.push_back(key);
      program.together = key.paired ? 2 : 1;
    }
  }
  return program;
}

template <class T>
T* pointer(void* parameter) {
  return *static_cast<T**>(parameter);
}

}  // namespace

Result<void> emulate_persistent(const std::string& text, std::span<void* const> parameters,
                                std::uint64_t seed, unsigned held_back) {
  LATHE_ASSIGN(const Program program, parse(text));
  dev::PersistentShape shape{};
  shape.steps = program.steps;
  shape.entries = program.entries;
  shape.blocks = program.blocks;
  shape.warps = program.warps;
  shape.slots = program.stages;
  shape.slot_bytes = program.slot_bytes;
  shape.columns = tile_columns(program);
  shape.attend_bytes = attend_bytes(program);
  const dev::PersistentOperands operands = {pointer<const dev::StepRecord>(parameters[0]),
                                            pointer<const dev::StreamEntry>(parameters[1]),
                                            pointer<dev::TokenControl>(parameters[2]),
                                            pointer<dev::PersistentState>(parameters[3]),
                                            pointer<dev::u64>(parameters[4]),
                                            pointer<dev::i32>(parameters[5]),
                                            pointer<dev::i32>(parameters[6]),
                                            pointer<const dev::StopTokens>(parameters[7])};
  const int tokens = *static_cast<const int*>(parameters[8]);
  const int chooses = *static_cast<const int*>(parameters[9]);
  running = &program;
  Result<void> ran = launch_together(
      "the persistent kernel", program.geometry(),
      [&] {
        if (program.together == 2)
          dev::run_persistent<Phases<2>>(operands, shape, tokens, chooses);
        else
          dev::run_persistent<Phases<1>>(operands, shape, tokens, chooses);
      },
      seed, held_back);
  running = nullptr;
  return ran;
}

}  // namespace lathe::emulation
