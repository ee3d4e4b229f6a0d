// Owns the running of PTX text on the host.
#include "tests/codegen/ptx_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "lathe/codegen/format.h"
#include "tests/codegen/ptx_arithmetic.h"
#include "tests/codegen/ptx_program.h"

namespace lathe::testing {
namespace {

using Operand = PtxOperand;
using Instruction = PtxInstruction;

constexpr int kWarp = 32;
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 32;

// What control flow, memory and other lanes take part in; the rest is arithmetic.
enum class Act { arithmetic, load, store, branch, leave, barrier, shuffle, vote, move };

Act act_of(const Instruction& i) {
  if (i.is("ld")) return Act::load;
  if (i.is("st")) return Act::store;
  if (i.is("bra")) return Act::branch;
  if (i.is("ret")) return Act::leave;
  if (i.is("bar")) return Act::barrier;
  if (i.is("shfl")) return Act::shuffle;
  if (i.is("vote")) return Act::vote;
  if (i.is("mov")) return Act::move;
  return Act::arithmetic;
}

class Block {
 public:
  Block(const PtxProgram& program, const std::vector<Act>& acts, const Geometry& geometry,
        std::span<void* const> arguments, unsigned x, unsigned y)
      : program_(program),
        acts_(acts),
        arguments_(arguments),
        x_(x),
        y_(y),
        threads_(geometry.threads),
        shared_(geometry.shared_bytes, std::byte{0xff}) {
    for (Thread& t : threads_)
      t.registers.assign(std::size_t(program.registers), ~std::uint64_t{0});
  }

  std::string run(WarpOrder order, std::uint64_t& steps) {
    const int warps = int(threads_.size()) / kWarp;
    while (problem_.empty()) {
      for (int w = 0; w < warps && problem_.empty(); ++w)
        run_warp((order == WarpOrder::rising ? w : warps - 1 - w) * kWarp, steps);
      const auto left = std::ranges::count_if(threads_, &Thread::left);
      if (left == std::ssize(threads_)) break;
      if (left > 0 && problem_.empty()) problem_ = "threads have left before a barrier of others";
      for (Thread& t : threads_) t.waiting = false;
    }
    return problem_;
  }

 private:
  struct Thread {
    std::vector<std::uint64_t> registers;
    int at = 0;
    bool waiting = false, left = false;
  };

  void wrong(const Instruction& i, const std::string& what) {
    if (problem_.empty()) problem_ = fmt::format("line {}, {}: {}", i.line, i.opcode, what);
  }

  void run_warp(int first, std::uint64_t& steps) {
    while (problem_.empty()) {
      int at = -1;
      for (int l = first; l < first + kWarp; ++l) {
        const Thread& t = threads_[std::size_t(l)];
        if (!t.left && !t.waiting && (at < 0 || t.at < at)) at = t.at;
      }
      if (at < 0) return;
      if (++steps > kMostSteps) problem_ = "the kernel does not end";
      if (at >= std::ssize(program_.instructions)) problem_ = "the kernel runs past its end";
      if (!problem_.empty()) return;
      const Instruction& i = program_.instructions[std::size_t(at)];
      const Act act = acts_[std::size_t(at)];
      active_.clear();
      for (int l = first; l < first + kWarp; ++l) {
        Thread& t = threads_[std::size_t(l)];
        if (t.left || t.waiting || t.at != at) continue;
        ++t.at;
        if (i.guard < 0 || ((t.registers[std::size_t(i.guard)] & 1) != 0) != i.guard_inverted)
          active_.push_back(l);
      }
      if (act == Act::shuffle || act == Act::vote) {
        if (active_.size() != kWarp) return wrong(i, "not all lanes of the warp are here");
        exchange(i, act, first);
        continue;
      }
      for (const int l : active_) execute(i, act, l);
    }
  }

  std::uint64_t value(const Operand& o, int lane) const {
    const Thread& t = threads_[std::size_t(lane)];
    switch (o.kind) {
      case Operand::Kind::reg:
        return o.inverted ? ~t.registers[std::size_t(o.index)] & 1
                          : t.registers[std::size_t(o.index)];
      case Operand::Kind::special:
        return o.index == kTidX ? std::uint64_t(lane) : o.index == kCtaidX ? x_ : y_;
      default:
        return o.value;
    }
  }
  void set(const Operand& o, int lane, std::uint64_t v) {
    if (o.kind == Operand::Kind::reg)
      threads_[std::size_t(lane)].registers[std::size_t(o.index)] = v;
  }

  void execute(const Instruction& i, Act act, int lane) {
    Thread& t = threads_[std::size_t(lane)];
    switch (act) {
      case Act::branch:
        t.at = i.operands[0].index;
        return;
      case Act::leave:
        t.left = true;
        return;
      case Act::barrier:
        t.waiting = true;
        return;
      case Act::load:
      case Act::store:
        return access(i, act == Act::store, lane);
      case Act::move:
        return move(i, lane);
      default:
        break;
    }
    std::uint64_t in[4] = {};
    for (std::size_t k = 1; k < i.operands.size() && k < 5; ++k)
      in[k - 1] = value(i.operands[k], lane);
    const std::optional<std::uint64_t> out = ptx_arithmetic(i, in);
    if (!out) return wrong(i, "the instruction is not known");
    set(i.operands[0], lane, *out);
  }

  // Where braces stand a value is put together of parts, lowest first, or taken apart.
  void move(const Instruction& i, int lane) {
    const Operand &to = i.operands[0], &from = i.operands[1];
    const int bits = i.types[0].bits;
    if (to.kind == Operand::Kind::vector) {
      const std::uint64_t v = value(from, lane);
      const int each = bits / int(to.parts.size());
      for (std::size_t p = 0; p < to.parts.size(); ++p)
        set(to.parts[p], lane, v >> (each * int(p)) & ((std::uint64_t{1} << each) - 1));
    } else if (from.kind == Operand::Kind::vector) {
      const int each = bits / int(from.parts.size());
      std::uint64_t v = 0;
      for (std::size_t p = 0; p < from.parts.size(); ++p)
        v |= (value(from.parts[p], lane) & ((std::uint64_t{1} << each) - 1)) << (each * int(p));
      set(to, lane, v);
    } else {
      set(to, lane, value(from, lane));
    }
  }

  void access(const Instruction& i, bool stores, int lane) {
    const Operand& memory = i.operands[stores ? 0 : 1];
    const Operand& data = i.operands[stores ? 1 : 0];
    std::uint64_t address = memory.value;
    if (!memory.parts.empty()) address += value(memory.parts[0], lane);
    const bool shared = i.has("shared"), param = i.has("param");
    if (shared) address = std::uint32_t(address);
    const std::span<const Operand> parts = data.kind == Operand::Kind::vector
                                               ? std::span<const Operand>(data.parts)
                                               : std::span(&data, 1);
    const std::size_t each = std::size_t(i.types.back().bits) / 8, bytes = each * parts.size();
    if (address % bytes != 0) return wrong(i, fmt::format("{:#x} is not aligned", address));
    if (shared && address + bytes > shared_.size())
      return wrong(
          i, fmt::format("shared memory has {} bytes, not {}", shared_.size(), address + bytes));
    if (param) {
      if (address / 8 >= arguments_.size()) return wrong(i, "there is no such parameter");
      return set(data, lane, reinterpret_cast<std::uint64_t>(arguments_[address / 8]));
    }
    std::byte* at = shared ? shared_.data() + address : reinterpret_cast<std::byte*>(address);
    for (std::size_t p = 0; p < parts.size(); ++p, at += each) {
      std::uint64_t v = stores ? value(parts[p], lane) : 0;
      if (stores) {
        std::memcpy(at, &v, each);
      } else {
        std::memcpy(&v, at, each);
        set(parts[p], lane, ptx_widened(v, i.types.back()));
      }
    }
  }

  void exchange(const Instruction& i, Act act, int first) {
    std::uint64_t out[kWarp] = {};
    for (int l = 0; l < kWarp; ++l) {
      const std::uint64_t by = act == Act::shuffle ? value(i.operands[2], first + l) : 0;
      const int from = i.has("bfly") ? l ^ int(by & 31) : int(by & 31);
      if (act == Act::shuffle)
        out[l] = value(i.operands[1], first + from);
      else
        for (int other = 0; other < kWarp; ++other)
          out[l] |= (value(i.operands[1], first + other) & 1) << other;
    }
    for (int l = 0; l < kWarp; ++l) set(i.operands[0], first + l, out[l]);
  }

  const PtxProgram& program_;
  const std::vector<Act>& acts_;
  const std::span<void* const> arguments_;
  const unsigned x_, y_;
  std::vector<Thread> threads_;
  std::vector<std::byte> shared_;
  std::vector<int> active_;
  std::string problem_;
};

}  // namespace

Result<void> run_ptx(const Ptx& ptx, std::span<void* const> arguments, WarpOrder order) {
  LATHE_ASSIGN(const PtxProgram program, ptx_program(ptx.text));
  std::vector<Act> acts;
  for (const Instruction& i : program.instructions) acts.push_back(act_of(i));
  const Geometry& g = ptx.geometry;
  const unsigned blocks = g.grid_x * g.grid_y;
  std::uint64_t steps = 0;
  for (unsigned b = 0; b < blocks; ++b) {
    const unsigned n = order == WarpOrder::rising ? b : blocks - 1 - b;
    const std::string problem =
        Block(program, acts, g, arguments, n % g.grid_x, n / g.grid_x).run(order, steps);
    if (!problem.empty()) return Error{Code::internal, ptx.entry + ": " + problem, {}};
  }
  return {};
}

}  // namespace lathe::testing
