// Owns a CUDA driver made of host memory, for tests without a GPU.
//
// It hands out host memory as device memory, queues what is put on a stream until somebody waits
// for the stream (so that work which reads too late or too early shows), and runs a kernel by its
// oracle, or as it is told to. It can fail any one call, and it knows what is still allocated. One
// instance at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "runtime/driver.h"
#include "runtime/platform.h"

namespace lathe::testing {

struct FakeOptions {
  bool execute = true;             // run the oracles; false: count the launches only
  bool copies = true;              // copy; false: count the copies only
  std::size_t memory = 64u << 20;  // bytes that allocations may take in all
  std::size_t others = 0;          // of those: what other processes have
  int compute = 90;
  int driver_version = 13000;
  bool stream_memory_operations = true;
  int shared_memory = 227 * 1024;  // that a block may ask for
  int multiprocessors = 4;
  int cache_bytes = 64 * 1024;        // of the L2 cache
  int blocks_per_multiprocessor = 1;  // that may run at once
  // Of a graph's nodes: one that runs when no other can, the others in their order; and a pair of
  // which the second does not wait for the first. Without, of those that may run always the last.
  std::optional<std::size_t> held_node = {};
  std::optional<std::pair<std::size_t, std::size_t>> forgotten_edge = {};
  // In place of a kernel's oracle; and what a persistent kernel does, by its Program's text(): else
  // nothing.
  std::function<Result<void>(const KernelKey&, std::span<void* const>)> run_kernel = {};
  std::function<Result<void>(const std::string&, std::span<void* const>)> run_persistent = {};
};

// Failures that a driver gives at any time, drawn call by call.
struct RandomFailures {
  std::uint32_t seed = 1;
  double rate = 0.01;           // of the calls that can fail so
  CUcontext context = nullptr;  // only there; null: the primary one
};

// The last launch of a persistent kernel.
struct CooperativeLaunch {
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
  std::vector<std::uint64_t> pointers;
  int tokens = 0, chooses = 0;
};

// What a capture of a stream has recorded.
using FakeRecording = std::deque<std::function<void()>>;

class FakeDriver {
 public:
  explicit FakeDriver(FakeOptions options = {});
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const Driver& table() const { return table_; }
  // The fake driver with a tool chain whose "cubins" are what it loads.
  Platform platform() const;

  // Fails the `index`-th call from now on, once. Calls that only word an error do not count.
  void fail_call(int index, CUresult status);
  // The same, counting the calls whose names begin so.
  void fail_call(const std::string& begin, int index, CUresult status);
  // From now on until stop_failing(). Some of the failures lose the context: every call there then
  // fails the same way, until a primary context's last user has let go of it.
  void fail_at_random(const RandomFailures& failures);
  void stop_failing();
  int random_failures() const;                      // that there were since fail_at_random()
  bool is_lost(CUcontext context = nullptr) const;  // null: the primary one
  // How streams get on when somebody asks for their end. hung: not at all, and a call that would
  // wait for ever is a violation; slow: one thing for each question.
  enum class Pace { prompt, slow, hung };
  void set_pace(Pace pace, std::chrono::milliseconds of_each_thing = {});
  void reset_counts();
  int calls() const;  // since reset_counts()
  int calls(const std::string& name) const;
  // Since reset_counts(), by copies and by values that streams write.
  std::int64_t bytes_to_device() const;
  std::int64_t bytes_to_host() const;
  std::string failed_call() const;  // the call that fail_call() made fail
  std::optional<CooperativeLaunch> cooperative_launch() const;
  // Of the graph that was launched last, the nodes that each node waits for, and the order in which
  // they ran.
  struct GraphRun {
    std::vector<std::vector<std::size_t>> waits_for;
    std::vector<std::size_t> order;
    int early = 0;  // edges by which a node may begin before the one that it waits for has ended
  };
  GraphRun graph_run() const;

  // Handles that were made and not destroyed: "1 device buffer, 2 streams"; empty when none.
  std::string leaks() const;
  // What a driver would not have forgiven: no context current, a copy outside a buffer ...
  std::vector<std::string> violations() const;

  // Memory of the caller's own, which counts as the device's, or as pinned, until it is taken back:
  // a violation while a stream has work to do, unless there are streams that have nothing to do
  // with it.
  void lend(std::uint64_t address, std::size_t bytes, bool pinned);
  void take_back(std::uint64_t address, bool others_work = false);

  CUcontext make_context();           // one of the caller's
  CUcontext current_context() const;  // on this thread
  void push_context(CUcontext context);
  CUstream make_stream();
  // As a caller that captures the stream does. What is put on it in between is recorded.
  void begin_capture(CUstream stream);
  FakeRecording end_capture(CUstream stream);
  void replay(const FakeRecording& recording, CUstream stream);

 private:
  Driver table_;
};

// An assembler and compilers that need nothing: the PTX is the key's text.
class FakeToolchain final : public Toolchain {
 public:
  Result<void> covers(const KernelKey& key, Route route) const override;
  Result<std::string> compiler(Route route) const override;
  std::string fingerprint() const override { return "fingerprint"; }
  Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const override;
  Result<Ptx> emit(const Program& program, const Target& target) const override;
  // Whatever its source says, the kernel writes a value (argument 1) to so many (argument 2) i32s.
  Result<Ptx> emit(const CustomKernel& kernel, const Target& target) const override;
  const Assembler& assembler() const override;
};

}  // namespace lathe::testing
