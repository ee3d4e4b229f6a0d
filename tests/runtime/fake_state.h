// Owns what the fake driver knows: its handles, its counts, and the failure it is told to give.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {

// What the fake tool chain's cubins begin with.
inline constexpr char kImageMark[] = "fake cubin\n";
// How the PTX of a custom kernel begins. It takes three arguments.
inline constexpr char kCustomMark[] = "custom kernel\n";

// What follows it in the PTX of a persistent kernel is its Program's text().
inline constexpr char kPersistentMark[] = "persistent kernel ";

// A loaded kernel. What is neither a key's nor the one that ends a token does nothing.
struct FakeLibrary {
  std::string text;
  bool parsed = false;   // text is a key's
  bool advance = false;  // it is the kernel that ends a token
  bool waits = false;    // and it does so before it touches memory
  bool persistent = false;
  bool custom = false;
  KernelKey key;
  std::size_t arguments = 0;
};
struct FakeLaunch {
  const FakeLibrary* library = nullptr;
  std::vector<std::uint64_t> arguments;
};
struct FakeGraph {
  std::deque<FakeLaunch> nodes;
  std::vector<std::vector<std::size_t>> waits_for;  // by node
  int early = 0;                                    // edges by which a kernel may begin early
};
struct FakeStream {
  std::deque<std::function<void()>> queue;
  bool capturing = false;
  FakeRecording recorded;
};
struct FakeContext {
  int retained = 0;
  CUresult lost = CUDA_SUCCESS;  // what every call fails with from then on
};

struct State {
  FakeOptions options;
  // Of all that is here, and of the work of streams, which may complain.
  mutable std::recursive_mutex mutex;
  std::map<std::string, int, std::less<>> counts;
  int total = 0;
  std::int64_t bytes_to_device = 0, bytes_to_host = 0;
  int fail_in = -1;
  std::string fail_begin;  // of the names of the calls that count
  CUresult fail_status = CUDA_SUCCESS;
  std::string failed;
  std::optional<RandomFailures> random;
  std::mt19937 draws;
  int random_failures = 0;
  std::set<std::string> violations;
  std::optional<CooperativeLaunch> cooperative;
  FakeDriver::GraphRun graph_run;
  FakeDriver::Pace pace = FakeDriver::Pace::prompt;
  std::chrono::milliseconds of_each_thing{};

  FakeContext primary;
  std::vector<std::unique_ptr<FakeContext>> contexts;
  std::map<CUdeviceptr, std::size_t> buffers;
  std::size_t allocated = 0;
  std::map<void*, std::size_t> pinned;
  std::set<FakeStream*> streams;
  std::set<void*> events;
  std::set<FakeLibrary*> libraries;
  std::set<FakeGraph*> graphs;
  std::set<FakeGraph*> executables;
  FakeStream default_stream;
};

extern State* g_state;
extern thread_local std::vector<FakeContext*> t_contexts;

void violation(const std::string& text);
// Counts the call and decides whether it fails. Allocates only for a name it has not seen.
CUresult enter(const char* name, bool needs_context = true);
FakeStream& stream_of(CUstream stream);
// Puts work at the stream's end, or into the graph that it is being captured into.
void put(CUstream stream, std::function<void()> work);
// A violation for a call that a capture of the stream does not allow.
void refuse_capture(CUstream stream, const char* call);
void check_range(CUdeviceptr pointer, std::size_t bytes, const char* call);
// Does what is queued, for a call that waits; a violation where it would wait for ever.
void finish(FakeStream& stream, const char* call);
void drain(FakeStream& stream);
void run(const FakeLaunch& launch);
FakeLaunch make_launch(CUfunction function, void** parameters);

void fill_device_calls(Driver& table);  // devices, contexts, memory
void fill_work_calls(Driver& table);    // streams, events, libraries, launches, graphs

#define FAKE_ENTER(name) \
  if (CUresult entered = enter(name); entered != CUDA_SUCCESS) return entered
#define FAKE_ENTER_ANYWHERE(name) \
  if (CUresult entered = enter(name, false); entered != CUDA_SUCCESS) return entered

}  // namespace lathe::testing
