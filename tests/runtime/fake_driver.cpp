// Owns the life of the fake driver and the questions tests ask of it.
#include "tests/runtime/fake_driver.h"

#include <cstdlib>
#include <memory>

#include "tests/runtime/fake_state.h"

namespace lathe::testing {

FakeDriver::FakeDriver(FakeOptions options) {
  g_state = new State;
  g_state->options = options;
  fill_device_calls(table_);
  fill_work_calls(table_);
  if (g_state->options.driver_version < 12030) table_.cuGraphAddDependencies_v2 = nullptr;
}

FakeDriver::~FakeDriver() {
  for (FakeStream* stream : g_state->streams) delete stream;
  // What a failed call made the code under test leave behind is counted by leaks(), not here.
  for (const auto& [pointer, bytes] : g_state->buffers) std::free(reinterpret_cast<void*>(pointer));
  for (const auto& [pointer, bytes] : g_state->pinned) std::free(pointer);
  for (FakeGraph* graph : g_state->graphs) delete graph;
  for (FakeGraph* executable : g_state->executables) delete executable;
  for (FakeLibrary* library : g_state->libraries) delete library;
  for (void* event : g_state->events) delete reinterpret_cast<FakeStream**>(event);
  delete g_state;
  g_state = nullptr;
  t_contexts.clear();
}

Platform FakeDriver::platform() const {
  Platform platform;
  platform.driver = &table_;
  platform.toolchain = [] { return std::make_unique<FakeToolchain>(); };
  return platform;
}

void FakeDriver::fail_call(int index, CUresult status) {
  fail_call("", index, status);
}

void FakeDriver::fail_call(const std::string& begin, int index, CUresult status) {
  std::lock_guard lock(g_state->mutex);
  g_state->fail_begin = begin;
  g_state->fail_in = index;
  g_state->fail_status = status;
  g_state->failed.clear();
}

void FakeDriver::fail_at_random(const RandomFailures& failures) {
  std::lock_guard lock(g_state->mutex);
  g_state->random = failures;
  g_state->draws.seed(failures.seed);
  g_state->random_failures = 0;
}

void FakeDriver::stop_failing() {
  std::lock_guard lock(g_state->mutex);
  g_state->random.reset();
}

int FakeDriver::random_failures() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->random_failures;
}

bool FakeDriver::is_lost(CUcontext context) const {
  std::lock_guard lock(g_state->mutex);
  const auto* of = context ? reinterpret_cast<FakeContext*>(context) : &g_state->primary;
  return of->lost != CUDA_SUCCESS;
}

void FakeDriver::set_pace(Pace pace, std::chrono::milliseconds of_each_thing) {
  std::lock_guard lock(g_state->mutex);
  g_state->pace = pace;
  g_state->of_each_thing = of_each_thing;
}

void FakeDriver::reset_counts() {
  std::lock_guard lock(g_state->mutex);
  for (auto& [name, count] : g_state->counts) count = 0;
  g_state->total = 0;
  g_state->bytes_to_device = g_state->bytes_to_host = 0;
}

int FakeDriver::calls() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->total;
}

int FakeDriver::calls(const std::string& name) const {
  std::lock_guard lock(g_state->mutex);
  const auto found = g_state->counts.find(name);
  return found == g_state->counts.end() ? 0 : found->second;
}

std::int64_t FakeDriver::bytes_to_device() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->bytes_to_device;
}

std::int64_t FakeDriver::bytes_to_host() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->bytes_to_host;
}

std::string FakeDriver::failed_call() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->failed;
}

FakeDriver::GraphRun FakeDriver::graph_run() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->graph_run;
}

std::optional<CooperativeLaunch> FakeDriver::cooperative_launch() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->cooperative;
}

std::string FakeDriver::leaks() const {
  std::lock_guard lock(g_state->mutex);
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0) text += std::to_string(count) + " " + what + ", ";
  };
  add(g_state->buffers.size(), "device buffers");
  add(g_state->pinned.size(), "pinned buffers");
  add(g_state->streams.size(), "streams");
  add(g_state->events.size(), "events");
  add(g_state->libraries.size(), "libraries");
  add(g_state->graphs.size(), "graphs");
  add(g_state->executables.size(), "executable graphs");
  add(std::size_t(g_state->primary.retained), "retained contexts");
  add(t_contexts.size(), "pushed contexts");
  return text;
}

std::vector<std::string> FakeDriver::violations() const {
  std::lock_guard lock(g_state->mutex);
  return {g_state->violations.begin(), g_state->violations.end()};
}

void FakeDriver::lend(std::uint64_t address, std::size_t bytes, bool pinned) {
  std::lock_guard lock(g_state->mutex);
  if (pinned)
    g_state->pinned[reinterpret_cast<void*>(address)] = bytes;
  else
    g_state->buffers[address] = bytes;
}

void FakeDriver::take_back(std::uint64_t address, bool others_work) {
  std::lock_guard lock(g_state->mutex);
  for (const FakeStream* stream : g_state->streams)
    if (!others_work && !stream->queue.empty())
      violation("memory was given back while a stream works");
  if (g_state->pinned.erase(reinterpret_cast<void*>(address)) + g_state->buffers.erase(address) !=
      1)
    violation("memory was given back that was not taken");
}

CUcontext FakeDriver::make_context() {
  std::lock_guard lock(g_state->mutex);
  g_state->contexts.push_back(std::make_unique<FakeContext>());
  return reinterpret_cast<CUcontext>(g_state->contexts.back().get());
}

CUcontext FakeDriver::current_context() const {
  return t_contexts.empty() ? nullptr : reinterpret_cast<CUcontext>(t_contexts.back());
}

void FakeDriver::push_context(CUcontext context) {
  t_contexts.push_back(reinterpret_cast<FakeContext*>(context));
}

CUstream FakeDriver::make_stream() {
  auto* stream = new FakeStream;
  std::lock_guard lock(g_state->mutex);
  g_state->streams.insert(stream);
  return reinterpret_cast<CUstream>(stream);
}

void FakeDriver::begin_capture(CUstream stream) {
  stream_of(stream).capturing = true;
}

FakeRecording FakeDriver::end_capture(CUstream stream) {
  FakeStream& of = stream_of(stream);
  of.capturing = false;
  return std::exchange(of.recorded, {});
}

void FakeDriver::replay(const FakeRecording& recording, CUstream stream) {
  for (const auto& work : recording) put(stream, work);
}

}  // namespace lathe::testing
