// Owns the one table of kernels: a row per KernelType with everything Lathe knows about it.
//
// Whatever iterates kernels (tests, dump_ptx, plans, documentation, benchmarks) iterates this
// table. A row is reached from a key by row(key.type).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/target.h"

namespace lathe {

// Ways from a key to PTX: CUDA C++ through NVRTC, bitcode through LLVM, or a PTX text template.
enum class Route : std::uint8_t { nvrtc, llvm, text };
const char* route_name(Route route);
Result<Route> route_by_name(std::string_view name);

// The most shared memory that a kernel asks for: what a block has on sm_90 and sm_100.
inline constexpr int kMostSharedBytes = 227 * 1024;

// Launch shape. Blocks are one-dimensional.
struct Geometry {
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  unsigned threads = 32;      // per block
  unsigned shared_bytes = 0;  // dynamic shared memory per block
  unsigned resident = 1;      // blocks that a multiprocessor's registers are to be enough for

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

enum class Access : std::uint8_t { read, write, read_write };
// Blocks are of a format, as in the model file: weights, and vectors or results that are not f32.
// Tiles: lathe/codegen/tile.h, of gemm lathe/codegen/gemm_operand.h. f16: operands of the matrix
// units, in an order of their own.
enum class Element : std::uint8_t { f32, i32, blocks, tiles, kv, f16 };

// The matrix behind a parameter of blocks or tiles.
struct Matrix {
  Format format = Format::f32;
  int n = 0;
  int k = 0;

  std::int64_t block_bytes() const { return n * row_bytes(format, k); }
};

// One pointer argument. All kernel parameters are device pointers; shapes are in the code.
struct Param {
  const char* name;
  Access access;
  Element element;
  // Bytes the kernel may touch. For KV caches: per cached position. For a table of pages: per page
  // of the sequences.
  std::int64_t bytes;
  int alignment;  // of a custom kernel's argument 0: a value and no pointer
  bool per_position = false;
  // May be the same buffer as an output; every other parameter is distinct from all outputs.
  bool may_alias = false;
  // What it holds after the launch means nothing to anyone.
  bool scratch = false;
  Matrix matrix = {};
  bool per_page = false;
  // No kernel that may run before in a graph writes it: a model's, or the host's.
  bool constant = false;

  // Bytes of the argument as oracles take it: tiles that a kernel reads are blocks there.
  std::int64_t oracle_bytes() const {
    return element == Element::tiles && access == Access::read ? matrix.block_bytes() : bytes;
  }
};

// What one launch must move and do at least; for attention, per cached position.
struct Cost {
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t operations = 0;
};

// True: nothing that the kernel writes, or that is written while it runs, overlaps what it reads
// through this parameter, so that loads may be moved anywhere. Where a kernel begins early, what is
// no constant may still be written.
bool is_constant(const KernelKey& key, const Param& param);

// A call of a device function from ptx_templates/ops: pointers that are kernel parameters or null,
// then the shape as constants, in the order of the function's declaration.
struct OpArgument {
  enum class Kind : std::uint8_t { parameter, null, integer, real } kind;
  int integer = 0;  // the parameter's index, or the constant
  float real = 0;

  friend bool operator==(const OpArgument&, const OpArgument&) = default;
};
struct OpCall {
  std::string header;    // "ops/gemv.h"
  std::string function;  // "gemv_q4_k"
  std::vector<OpArgument> arguments;
  // The function waits for the kernels before by itself. Where it does not, a kernel that begins
  // early waits before the call.
  bool waits = false;

  friend bool operator==(const OpCall&, const OpCall&) = default;
};

// What a kernel's instructions came with: a compute capability and a PTX version, 0 of whatever any
// target has; and what they are.
struct Instructions {
  int compute = 0;
  int ptx = 0;  // times ten
  const char* what = "";
};

struct KernelRow {
  KernelType type;
  const char* name;     // "gemv"
  const char* summary;  // one line
  // Long names of the fields that its keys set beside type and format. All others stay at their
  // default, so that a kernel has one key.
  const char* fields;
  // Names of the formats that its keys may have; kAnyFormat: check() says which.
  const char* formats;
  // Ok, or why no kernel can exist for this key.
  Result<void> (*check)(const KernelKey&);
  Geometry (*geometry)(const KernelKey&);
  std::vector<Param> (*params)(const KernelKey&);
  OpCall (*call)(const KernelKey&);
  Cost (*cost)(const KernelKey&);
  // The definition of the result, in double precision, on host pointers in the order of params().
  // The host has no tiles: where the kernel reads them, the oracle reads the blocks they came from.
  // Computes share `part` of `parts`; the shares are disjoint and may run on different threads.
  void (*oracle)(const KernelKey&, std::span<void* const> arguments, int part, int parts);
  // Relative L2 error allowed against the oracle for random inputs, and the reason for it.
  double bound;
  const char* bound_reason;
  // The PTX template that covers this key, or nullptr.
  const char* (*text_template)(const KernelKey&);
  // The first compute capability that has the kernel's instructions, and what they are; 0: any.
  int min_compute = 0;
  const char* min_compute_reason = "";
  // Which instructions of this key's kernel have results that PTX does not define to the bit, such
  // as "mma"; nullptr: none, so that NVRTC's code, LLVM's and the emulator give the same bits.
  const char* (*inexact)(const KernelKey&) = nullptr;
  // The bound of a key, where some keys are held to less; null: that of all.
  double (*key_bound)(const KernelKey&) = nullptr;
  // The instructions of a key, where some keys need more than min_compute says; null: none does.
  Instructions (*key_instructions)(const KernelKey&) = nullptr;

  bool uses(std::string_view field) const;  // whether `fields` has it
  bool covers(Format format) const;         // whether `formats` has it
};
// Of kernels that read weights.
inline constexpr const char* kAnyFormat = "";

std::span<const KernelRow> kernel_table();
const KernelRow& row(KernelType type);
Result<KernelType> kernel_type_by_name(std::string_view name);

// The relative L2 error allowed of this key.
double error_bound(const KernelKey& key);
// check() of the key's row, with the key's text in the error.
Result<void> check_key(const KernelKey& key);
// The first compute capability whose kernels can begin early.
inline constexpr int kEarlyCompute = 90;
// Whether what a kernel that begins early does before it calls its op is to wait.
bool waits_at_once(const KernelKey& key, const OpCall& call);
// True, or why this route cannot lower the key.
Result<void> route_covers(const KernelKey& key, Route route);
// What a target must have for this key; its PTX is of that version, or the target's if that is
// newer.
Instructions instructions_of(const KernelKey& key);
// Ok, or why no route can lower the key for this target: it lacks the instructions.
Result<void> target_covers(const KernelKey& key, const Target& target);

}  // namespace lathe
