// Owns what the calls of the C interface's fuzzer are made of: arguments that the input chooses,
// handles of every kind, open and closed, and what must hold after each call.
//
// Pointers are null or lead to as much as the contract asks for, for more no library can check.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lathe/lathe.hpp"
#include "tests/fuzz/fuzzing.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::fuzz {

constexpr int kMostTokens = 16;
constexpr std::int32_t kMostContext = 64;
constexpr int kVocabulary = 80;  // of the models that are opened

#define LATHE_CLOSE(Handle, call)             \
  inline lathe_status close(Handle* handle) { \
    return call(handle);                      \
  }
LATHE_CLOSE(lathe_key, lathe_key_close)
LATHE_CLOSE(lathe_compilers, lathe_compilers_close)
LATHE_CLOSE(lathe_ptx, lathe_ptx_close)
LATHE_CLOSE(lathe_device, lathe_device_close)
LATHE_CLOSE(lathe_kernel, lathe_kernel_close)
LATHE_CLOSE(lathe_model, lathe_model_close)
LATHE_CLOSE(lathe_session, lathe_session_close)
LATHE_CLOSE(lathe_batch, lathe_batch_close)
LATHE_CLOSE(lathe_snapshot, lathe_snapshot_close)
LATHE_CLOSE(lathe_dense, lathe_dense_close)
LATHE_CLOSE(lathe_dense_cache, lathe_dense_cache_close)
#undef LATHE_CLOSE

class Caller {
 public:
  explicit Caller(FuzzedDataProvider& given) : input(given) {}
  // Closes all, and asks the driver what it had to forgive.
  ~Caller();

  FuzzedDataProvider& input;

  // Every failure has a sentence of its own, and none is a defect.
  static void seen(lathe_status status) {
    if (status == LATHE_OK) return;
    auto error = api::sized<lathe_error>();
    require(lathe_last_error(&error) == LATHE_OK && error.status == status &&
            error.message[0] != '\0' && status != LATHE_INTERNAL);
  }

  int one_of(int count) { return input.ConsumeIntegralInRange(0, count - 1); }
  bool rarely() { return one_of(16) == 0; }
  // Now and then any number at all.
  std::int32_t number(std::int32_t least, std::int32_t most) {
    return rarely() ? input.ConsumeIntegral<std::int32_t>()
                    : input.ConsumeIntegralInRange(least, most);
  }
  std::int32_t token() { return number(-1, kVocabulary + 1); }
  std::array<std::int32_t, kMostTokens> tokens();
  // Lives until the end of the run, as do the bytes.
  const char* text(const char* usual);
  const std::string& bytes(std::size_t most) {
    return texts_.emplace_back(input.ConsumeRandomLengthString(most));
  }
  // A place for what a call writes, or null.
  template <typename T>
  T* place(T& to) {
    return rarely() ? nullptr : &to;
  }

  // Room for as many as a call is told that there are, and not for one more; now and then null.
  template <typename T>
  T* room(std::int64_t count) {
    if (count <= 0 || rarely()) return nullptr;
    return reinterpret_cast<T*>(
        rooms_.emplace_back(new std::byte[std::size_t(count) * sizeof(T)]()).get());
  }

  // An open or a closed handle, null, or one of another kind.
  template <typename Handle>
  Handle* any() {
    const int which = one_of(16);
    if (which == 0) return nullptr;
    if (which == 1 && !all<lathe_key>().empty())
      return reinterpret_cast<Handle*>(all<lathe_key>().front());
    if (which == 2) return reinterpret_cast<Handle*>(input.ConsumeIntegral<std::uintptr_t>());
    const auto& handles = all<Handle>();
    if (handles.empty()) return nullptr;
    return handles[input.ConsumeIntegralInRange<std::size_t>(0, handles.size() - 1)];
  }
  // What `opened` writes to its argument is kept. Handles stay in their lists, so that later calls
  // meet closed ones.
  template <typename Handle, typename Open>
  void open(const Open& opened) {
    Handle* handle = nullptr;
    seen(opened(place(handle)));
    if (handle) all<Handle>().push_back(handle);
  }
  template <typename Handle>
  void keep(Handle* handle) {
    all<Handle>().push_back(handle);
  }
  // Null where none was.
  template <typename Handle>
  Handle* last() {
    return all<Handle>().empty() ? nullptr : all<Handle>().back();
  }
  void close_any();

  // A struct whose struct_size may be wrong, in a place that is as large as it says.
  template <typename Struct, typename Call>
  void fill(const Call& call) {
    alignas(Struct) std::array<std::byte, sizeof(Struct) + 256> place = {};
    auto* to = reinterpret_cast<Struct*>(place.data());
    to->struct_size = sizeof(Struct);
    const int how = one_of(8);
    if (how == 0) return seen(call(static_cast<Struct*>(nullptr)));
    if (how == 1) to->struct_size = input.ConsumeIntegralInRange<std::size_t>(0, place.size());
    const std::size_t size = to->struct_size;
    seen(call(to));
    require(to->struct_size == size);
  }
  // Of a struct that is read: now and then a size that it does not have.
  template <typename Struct>
  void resize(Struct& given) {
    if (one_of(8) == 0)
      given.struct_size = input.ConsumeIntegralInRange<std::size_t>(0, sizeof given);
  }

  // Keys of dense weights that were made, with the floats that they are of.
  struct Weight {
    lathe_dense_key key;
    const float* from;
  };
  std::vector<Weight> weights;

  // Of this run, made when it is first asked for.
  testing::FakeDriver& driver();
  CUstream stream();
  // Waits for it, as a program does before it closes what is launched there. null: the legacy one.
  void wait_for(CUstream stream);
  // Memory that counts as the device's: zeros, until a kernel writes there.
  std::uint64_t device_memory();
  static constexpr std::int64_t kDeviceBytes = 1 << 18;
  // What gives a device memory in place of the driver, so many times; it lives as long as the run.
  struct Memory {
    testing::FakeDriver* driver;
    int left;
  };
  Memory* memory(int left) { return &memories_.emplace_back(&driver(), left); }

 private:
  template <typename Handle>
  std::vector<Handle*>& all() {
    return std::get<std::vector<Handle*>>(handles_);
  }

  std::deque<std::string> texts_;  // whose addresses stay
  std::vector<std::unique_ptr<std::byte[]>> rooms_;
  std::optional<testing::FakeDriver> driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::deque<Memory> memories_;
  std::vector<std::byte> memory_;
  std::tuple<std::vector<lathe_session*>, std::vector<lathe_batch*>, std::vector<lathe_snapshot*>,
             std::vector<lathe_dense*>, std::vector<lathe_dense_cache*>, std::vector<lathe_kernel*>,
             std::vector<lathe_device*>, std::vector<lathe_model*>, std::vector<lathe_ptx*>,
             std::vector<lathe_compilers*>, std::vector<lathe_key*>>
      handles_;
};

// A folder of this process, for what calls write.
const std::string& scratch_folder();

// One call each. What a session or a batch is opened with is the input's choice too.
void call_kernels(Caller& caller);
void call_devices(Caller& caller);
void call_models(Caller& caller);
void call_sessions(Caller& caller);
void call_services(Caller& caller);
void call_batches(Caller& caller);
void call_dense(Caller& caller);

void open_session(Caller& caller);

// What most calls need, opened as the contract says, on handles that were opened so.
void open_usual_device(Caller& caller);
void open_usual_models(Caller& caller);
void open_usual_session(Caller& caller);
void open_usual_batch(Caller& caller);
void open_usual_dense(Caller& caller);

// Options of a session with what they point to.
struct SessionChoice {
  lathe_session_options options = api::sized<lathe_session_options>();
  lathe_model_part part = api::sized<lathe_model_part>();
  lathe_kv_atoms atoms = api::sized<lathe_kv_atoms>();
  bool cancelled = false;
};
void choose_session(Caller& caller, SessionChoice& choice);

}  // namespace lathe::fuzz
