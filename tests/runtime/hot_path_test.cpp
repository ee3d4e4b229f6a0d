// Counts what a token costs beyond its launches: no allocation, no file, no variable read, and no
// driver call but the expected few.
//
// The counters replace operator new and the file functions of this executable.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "lathe/runtime/batch.h"
#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/tiny_model.h"

namespace {
std::atomic<long> g_allocations = 0;
std::atomic<long> g_opened = 0;
std::atomic<long> g_variables = 0;

// Not inlined: the compiler would match what it sees of malloc and free against new and delete.
[[gnu::noinline]] void* counted(std::size_t size, std::size_t alignment) {
  ++g_allocations;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded ? rounded : alignment);
}
[[gnu::noinline]] void release(void* memory) {
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t size) {
  if (void* memory = counted(size, alignof(std::max_align_t))) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (void* memory = counted(size, std::size_t(alignment))) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, std::size_t(alignment));
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

extern "C" int open(const char* path, int flags, ...) {
  ++g_opened;
  using Open = int (*)(const char*, int, ...);
  static const auto next = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  std::va_list arguments;
  va_start(arguments, flags);
  const int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return next(path, flags, mode);
}

// A call of open() from within the C library would not be seen.
extern "C" FILE* fopen(const char* path, const char* mode) {
  ++g_opened;
  using Open = FILE* (*)(const char*, const char*);
  static const auto next = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "fopen"));
  return next(path, mode);
}

extern "C" char* getenv(const char* name) noexcept {
  ++g_variables;
  using Getenv = char* (*)(const char*);
  static const auto next = reinterpret_cast<Getenv>(::dlsym(RTLD_NEXT, "getenv"));
  return next(name);
}

namespace lathe::testing {
namespace {

TEST(HotPath, TheCountersCount) {
  const long allocations = g_allocations;
  const auto made = std::make_unique<int>(1);
  EXPECT_GT(g_allocations, allocations);
  const long variables = g_variables;
  static_cast<void>(std::getenv("HOME"));
  EXPECT_GT(g_variables, variables);
  const long opened = g_opened;
  if (FILE* file = std::fopen("/dev/null", "r")) std::fclose(file);
  EXPECT_GT(g_opened, opened);
}

// Whatever its strings say: no path in a model file is followed.
TEST(ModelFiles, AreTheOnlyFilesThatAreOpenedForThem) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() + "/tiny.gguf";
  const GgufImage image = tiny_model(model_shape(1));
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(image.bytes.data()),
             std::streamsize(image.bytes.size()));
  SessionOptions options;
  options.executor = ExecutorKind::cpu;
  options.plan.context = 16;
  options.threads = 1;
  const long opened = g_opened;
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().text();
  EXPECT_EQ(g_opened - opened, 1);
  const auto session = Session::open(*file, options);
  ASSERT_TRUE(session) << session.error().text();
  ASSERT_TRUE((*session)->step(1));
  ASSERT_TRUE((*session)->logits());
  EXPECT_EQ(g_opened - opened, 1);
}

TEST(HotPath, AThousandStepsAllocateAndOpenNothing) {
  const auto file = make_model();
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega}) {
    FakeDriver fake({.execute = false});
    SessionOptions options;
    options.executor = kind;
    options.plan.context = 2048;
    options.disk_cache = false;
    const auto session = open_session(file, options, fake.platform()).value();
    ASSERT_TRUE(session->step(1));  // the fake's own books
    fake.reset_counts();
    const long allocations = g_allocations;
    const long opened = g_opened;
    const long variables = g_variables;
    bool good = true;
    for (int i = 0; i < 1000; ++i) good = bool(session->step(i % 160)) && good;
    EXPECT_TRUE(good);
    EXPECT_EQ(g_allocations - allocations, 0) << executor_name(kind);
    EXPECT_EQ(g_opened - opened, 0) << executor_name(kind);
    EXPECT_EQ(g_variables - variables, 0) << executor_name(kind);

    // The plan's, and the one that ends the token.
    const int launches = kind == ExecutorKind::eager ? int(session->plan().steps.size()) + 1 : 1;
    const char* launch = kind == ExecutorKind::graph  ? "cuGraphLaunch"
                         : kind == ExecutorKind::mega ? "cuLaunchCooperativeKernel"
                                                      : "cuLaunchKernel";
    EXPECT_EQ(fake.calls(launch), 1000 * launches);
    EXPECT_EQ(fake.calls("cuStreamWriteValue64"), 1000);
    // Beside those: push, pop, and the question whether the stream is being captured.
    EXPECT_EQ(fake.calls(), 1000 * (launches + 4));
  }
}

TEST(HotPath, ReadingAPromptAllocatesNothing) {
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega}) {
    FakeDriver fake({.execute = false, .copies = false});
    SessionOptions options;
    options.executor = kind;
    options.plan.context = 2048;
    options.plan.chunk = 64;
    options.disk_cache = false;
    const auto session = open_session(make_model(), options, fake.platform()).value();
    ASSERT_EQ(session->report().chunk, 64);
    const std::vector<std::int32_t> prompt(200, 7);
    ASSERT_TRUE(session->feed(prompt));  // the fake's own books
    fake.reset_counts();
    const long allocations = g_allocations;
    bool good = true;
    for (int i = 0; i < 9; ++i) good = bool(session->feed(prompt)) && good;
    EXPECT_TRUE(good);
    EXPECT_EQ(g_allocations - allocations, 0) << executor_name(kind);
    if (kind == ExecutorKind::eager) continue;
    // Chunks of 64, 64, 64 and 7 tokens, then one that is decoded.
    EXPECT_EQ(fake.calls("cuGraphLaunch"), 9 * (kind == ExecutorKind::graph ? 5 : 4));
  }
}

// Sequences of all ages, steps of one row to many, a prompt in chunks; in a row and in pages.
TEST(HotPath, ABatchAllocatesNothing) {
  for (const auto& [kind, pages] :
       {std::pair(ExecutorKind::eager, 0), {ExecutorKind::graph, 0}, {ExecutorKind::graph, 20}}) {
    FakeDriver fake({.execute = false, .copies = false});
    BatchOptions options;
    options.session.executor = kind;
    options.session.plan.context = 512;
    options.session.plan.chunk = 64;
    options.session.disk_cache = false;
    options.sequences = 4;
    options.rows = 8;
    options.kv_pages = pages;
    const auto batch = open_batch(make_model(), options, fake.platform()).value();
    const std::vector<std::int32_t> prompt(100, 7);
    std::vector<BatchRow> rows;
    const auto round = [&] {
      bool good = true;
      for (int sequence = 0; sequence < 4; ++sequence) good = good && batch->join();
      good = good && batch->feed(2, prompt) && batch->copy(2, 3, 50);
      for (int count = 1; count <= 8; ++count) {
        rows.clear();
        for (int i = 0; i < count; ++i) rows.push_back({i % 4, i});
        good = good && batch->step(rows) && batch->logits(count - 1);
      }
      good = good && batch->rollback(2, 20);
      for (int sequence = 0; sequence < 4; ++sequence) good = good && batch->leave(sequence);
      return good;
    };
    ASSERT_TRUE(round());  // the fake's own books
    const long allocations = g_allocations, opened = g_opened, variables = g_variables;
    bool good = true;
    for (int i = 0; i < 20; ++i) good = round() && good;
    EXPECT_TRUE(good);
    EXPECT_EQ(g_allocations - allocations, 0) << executor_name(kind);
    EXPECT_EQ(g_opened - opened, 0) << executor_name(kind);
    EXPECT_EQ(g_variables - variables, 0) << executor_name(kind);
  }
}

TEST(HotPath, TheCFunctionsAddNothing) {
  FakeDriver fake({.execute = false});
  DeviceOptions device_options;
  device_options.disk_cache = false;
  lathe_device* device =
      c_api::open_device_handle(DeviceImpl::open(device_options, fake.platform()).value()).value();
  const GgufImage image = tiny_model(model_shape(1));
  lathe_session_options options = {};
  options.struct_size = sizeof options;
  options.context = 2048;
  options.device = device;
  lathe_model* model = nullptr;
  lathe_session* session = nullptr;
  lathe_key* key = nullptr;
  lathe_kernel* kernel = nullptr;
  ASSERT_EQ(lathe_model_open_bytes(image.bytes.data(), image.bytes.size(), "tiny", &model), 0);
  ASSERT_EQ(lathe_session_open(model, &options, &session), 0);
  ASSERT_EQ(lathe_key_parse("gemv.f32.k64.n3.w4", &key), 0);
  ASSERT_EQ(lathe_kernel_load(device, key, &kernel), 0);
  const std::uint64_t arguments[] = {4096, 8192, 16384};
  ASSERT_EQ(lathe_session_step(session, 1), 0);  // the fake's own books
  ASSERT_EQ(lathe_kernel_launch(kernel, arguments, 3, nullptr), 0);
  fake.reset_counts();
  const long allocations = g_allocations;
  int failures = 0;
  for (int i = 0; i < 1000; ++i) {
    failures += lathe_session_step(session, i % 160);
    failures += lathe_kernel_launch(kernel, arguments, 3, nullptr);
  }
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(g_allocations - allocations, 0);
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 1000);
  EXPECT_EQ(fake.calls("cuGraphLaunch"), 1000);
  lathe_kernel_close(kernel);
  lathe_key_close(key);
  lathe_session_close(session);
  lathe_model_close(model);
  lathe_device_close(device);
}

}  // namespace
}  // namespace lathe::testing
