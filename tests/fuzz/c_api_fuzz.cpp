// Calls the C functions in an order and with arguments that the input chooses: handles that are
// open, closed, of another kind or null; structs of any size; numbers of any value. Pointers are
// null or lead to as much as the contract asks for, for more no library can check.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <iterator>
#include <vector>

#include "lathe/lathe.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/plan/tiny_models.h"

namespace {

constexpr int kMostCalls = 64;
constexpr int kMostTokens = 16;
constexpr std::int32_t kMostContext = 64;

const std::vector<std::byte>& model_image() {
  static const std::vector<std::byte> bytes =
      lathe::testing::tiny_model(lathe::testing::tiny_llama()).bytes;
  return bytes;
}

class Caller {
 public:
  explicit Caller(FuzzedDataProvider& input) : input_(input) {}
  ~Caller() {
    for (lathe_session* handle : sessions_) lathe_session_close(handle);
    for (lathe_snapshot* handle : snapshots_) lathe_snapshot_close(handle);
    for (lathe_model* handle : models_) lathe_model_close(handle);
    for (lathe_ptx* handle : ptx_) lathe_ptx_close(handle);
    for (lathe_compilers* handle : compilers_) lathe_compilers_close(handle);
    for (lathe_key* handle : keys_) lathe_key_close(handle);
  }

  void call() {
    switch (input_.ConsumeIntegralInRange(0, 30)) {
      case 0:
        return open(
            keys_, [&](lathe_key** out) { return lathe_key_parse(text("gemv.q8_0.k64.n8"), out); });
      case 1:
        return fill<lathe_key_info>(
            [&](auto* info) { return lathe_key_get_info(any(keys_), info); });
      case 2:
        return fill<lathe_parameter>(
            [&](auto* to) { return lathe_key_get_parameter(any(keys_), number(-2, 8), to); });
      case 3: {
        auto options = sized<lathe_compiler_options>();
        options.nvrtc = options.llvm = "/nowhere/lib.so";
        return open(compilers_, [&](auto** out) { return lathe_compilers_open(&options, out); });
      }
      case 4:
        return open(ptx_, [&](lathe_ptx** out) {
          return lathe_ptx_emit(any(compilers_), any(keys_), text("sm_90a"), number(-1, 4), out);
        });
      case 5:
        return fill<lathe_ptx_info>(
            [&](auto* info) { return lathe_ptx_get_info(any(ptx_), info); });
      case 6: {
        const char* version = nullptr;
        return seen(lathe_compilers_get_version(any(compilers_), number(-1, 4),
                                                input_.ConsumeBool() ? &version : nullptr));
      }
      case 7:
        return close();
      case 8:
        return open_bytes();
      case 9:
        return open(models_, [&](lathe_model** out) {
          return lathe_model_open_bytes(model_image().data(), model_image().size(), text("tiny"),
                                        out);
        });
      case 10:
        if (input_.ConsumeBool()) {
          return fill<lathe_model_report>([&](auto* report) {
            return lathe_model_get_report(any(models_), number(-1, 100), number(-1, 4), report);
          });
        }
        return fill<lathe_model_info>(
            [&](auto* info) { return lathe_model_get_info(any(models_), info); });
      case 11:
      case 12:
        return open_session();
      case 13:
        return fill<lathe_session_info>(
            [&](auto* info) { return lathe_session_get_info(any(sessions_), info); });
      case 14:
        return seen(lathe_session_step(any(sessions_), token()));
      case 15:
        return feed();
      case 16:
      case 17:
        return generate();
      case 18: {
        const float* logits = nullptr;
        std::int32_t count = 0;
        return seen(lathe_session_get_logits(any(sessions_), &logits, &count));
      }
      case 19: {
        std::int32_t value = 0;
        seen(lathe_session_get_sampled(any(sessions_), &value));
        return seen(
            lathe_session_get_length(any(sessions_), input_.ConsumeBool() ? &value : nullptr));
      }
      case 20:
        return seen(lathe_session_rollback(any(sessions_), number(-2, kMostContext + 1)));
      case 21:
        return set_sampling();
      case 22: {
        const char* note = nullptr;
        return seen(lathe_session_get_note(any(sessions_), number(-1, 3), &note));
      }
      case 23:
        return move_kv();
      case 24:
        return capture();
      case 25:
        return open(snapshots_, [&](lathe_snapshot** out) {
          return lathe_session_snapshot(any(sessions_), number(-1, kMostContext), out);
        });
      case 26:
        seen(lathe_session_restore(any(sessions_), any(snapshots_)));
        return fill<lathe_snapshot_info>(
            [&](auto* info) { return lathe_snapshot_get_info(any(snapshots_), info); });
      case 27:
        return seen(lathe_session_reset(any(sessions_)));
      case 28:
        return choose();
      case 29:
        return open_device();
      default:
        return errors();
    }
  }

 private:
  // Every failure has a sentence of its own.
  void seen(lathe_status status) {
    if (status == LATHE_OK) return;
    auto error = sized<lathe_error>();
    lathe::fuzz::require(lathe_last_error(&error) == LATHE_OK && error.status == status &&
                         error.message[0] != '\0' && status != LATHE_INTERNAL);
  }

  template <typename Struct>
  static Struct sized() {
    Struct made = {};
    made.struct_size = sizeof(Struct);
    return made;
  }

  std::int32_t number(std::int32_t least, std::int32_t most) {
    return input_.ConsumeIntegralInRange(0, 15) == 0 ? input_.ConsumeIntegral<std::int32_t>()
                                                     : input_.ConsumeIntegralInRange(least, most);
  }
  std::int32_t token() { return number(-1, 81); }

  // Lives until the end of the run.
  const char* text(const char* usual) {
    switch (input_.ConsumeIntegralInRange(0, 3)) {
      case 0:
        return nullptr;
      case 1:
        return texts_.emplace_back(input_.ConsumeRandomLengthString(64)).c_str();
      default:
        return usual;
    }
  }

  // An open or a closed handle, null, or one of another kind.
  template <typename Handle>
  Handle* any(const std::vector<Handle*>& handles) {
    const int which = input_.ConsumeIntegralInRange(0, 15);
    if (which == 0) return nullptr;
    if (which == 1 && !keys_.empty()) return reinterpret_cast<Handle*>(keys_.front());
    if (which == 2) return reinterpret_cast<Handle*>(input_.ConsumeIntegral<std::uintptr_t>());
    if (handles.empty()) return nullptr;
    return handles[input_.ConsumeIntegralInRange<std::size_t>(0, handles.size() - 1)];
  }

  template <typename Handle, typename Open>
  void open(std::vector<Handle*>& handles, const Open& opened) {
    Handle* handle = nullptr;
    seen(opened(input_.ConsumeIntegralInRange(0, 15) == 0 ? nullptr : &handle));
    if (handle) handles.push_back(handle);
  }

  // Handles stay in their lists, so that later calls meet closed ones.
  void close() {
    switch (input_.ConsumeIntegralInRange(0, 5)) {
      case 0:
        return seen(lathe_key_close(any(keys_)));
      case 1:
        return seen(lathe_compilers_close(any(compilers_)));
      case 2:
        return seen(lathe_ptx_close(any(ptx_)));
      case 3:
        return seen(lathe_model_close(any(models_)));
      case 4:
        return seen(lathe_snapshot_close(any(snapshots_)));
      default:
        return seen(lathe_session_close(any(sessions_)));
    }
  }

  // A struct whose struct_size may be wrong, in a place that is as large as it says.
  template <typename Struct, typename Call>
  void fill(const Call& call) {
    alignas(Struct) std::array<std::byte, sizeof(Struct) + 256> place = {};
    auto* to = reinterpret_cast<Struct*>(place.data());
    to->struct_size = sizeof(Struct);
    switch (input_.ConsumeIntegralInRange(0, 7)) {
      case 0:
        return seen(call(static_cast<Struct*>(nullptr)));
      case 1:
        to->struct_size = input_.ConsumeIntegralInRange<std::size_t>(0, place.size());
        break;
      default:
        break;
    }
    const std::size_t size = to->struct_size;
    seen(call(to));
    lathe::fuzz::require(to->struct_size == size);
  }

  void open_bytes() {
    // They must stay as long as the model.
    const std::string& bytes = texts_.emplace_back(input_.ConsumeRandomLengthString(2048));
    open(models_, [&](lathe_model** out) {
      return lathe_model_open_bytes(bytes.data(), bytes.size(), text("fuzzed"), out);
    });
  }

  void open_session() {
    auto options = sized<lathe_session_options>();
    options.executor =
        input_.ConsumeIntegralInRange(0, 7) == 0 ? number(-1, 6) : LATHE_EXECUTOR_CPU;
    options.fusion = number(-1, 3);
    options.kv_format = number(-1, 3);
    options.context = input_.ConsumeIntegralInRange(-1, kMostContext);
    options.attention_splits = number(-1, 65);
    options.threads = input_.ConsumeIntegralInRange(-1, 2);
    if (input_.ConsumeIntegralInRange(0, 15) == 0)
      options.weights = [](void*, const char*, std::int32_t, std::int64_t) -> std::uint64_t {
        return 0;
      };
    if (input_.ConsumeIntegralInRange(0, 7) == 0)
      options.struct_size = input_.ConsumeIntegralInRange<std::size_t>(0, sizeof options);
    open(sessions_, [&](lathe_session** out) {
      return lathe_session_open(any(models_),
                                input_.ConsumeIntegralInRange(0, 15) ? &options : nullptr, out);
    });
  }

  // There is none where fuzzers run: what is asked is how the options are read.
  void open_device() {
    auto options = sized<lathe_device_options>();
    options.device = number(-1, 2);
    std::array<std::int32_t, 4> routes;
    for (std::int32_t& route : routes) route = number(-1, 4);
    options.routes = input_.ConsumeIntegralInRange(0, 7) ? routes.data() : nullptr;
    options.route_count = input_.ConsumeIntegralInRange(-1, int(routes.size()));
    options.no_disk_cache = 1;
    options.cache_cap_bytes = number(-1, 2);
    options.log = [](void*, std::int32_t, const char*) {};
    lathe_memory_hooks memory = sized<lathe_memory_hooks>();
    if (input_.ConsumeIntegralInRange(0, 3) == 0)
      memory.struct_size = input_.ConsumeIntegralInRange<std::size_t>(0, sizeof memory);
    options.memory = &memory;
    if (input_.ConsumeIntegralInRange(0, 7) == 0)
      options.struct_size = input_.ConsumeIntegralInRange<std::size_t>(0, sizeof options);
    lathe_device* device = nullptr;
    const lathe_status status = lathe_device_open(&options, &device);
    seen(status);
    if (status == LATHE_OK) seen(lathe_device_close(device));
    auto info = sized<lathe_device_info>();
    seen(lathe_device_get_info(device, &info));
  }

  void feed() {
    std::array<std::int32_t, kMostTokens> tokens;
    for (std::int32_t& each : tokens) each = token();
    const bool null = input_.ConsumeIntegralInRange(0, 7) == 0;
    seen(lathe_session_feed(any(sessions_), null ? nullptr : tokens.data(),
                            input_.ConsumeIntegralInRange(-1, kMostTokens)));
  }

  void generate() {
    std::array<std::int32_t, kMostTokens> tokens;
    std::array<std::int32_t, 12> stops;
    for (std::int32_t& each : stops) each = token();
    auto run = sized<lathe_run_options>();
    run.stops = input_.ConsumeBool() ? stops.data() : nullptr;
    run.stop_count = input_.ConsumeIntegralInRange(-1, int(stops.size()));
    if (input_.ConsumeBool()) run.listener = [](void*, std::int32_t) {};
    bool cancelled = input_.ConsumeBool();
    run.cancel_user = &cancelled;
    if (input_.ConsumeBool())
      run.cancel = [](void* user) { return std::int32_t(*static_cast<bool*>(user)); };
    std::uint32_t word = input_.ConsumeIntegral<std::uint32_t>();
    run.constraint_user = &word;
    if (input_.ConsumeBool())
      run.constraint = [](void* user, const std::int32_t*, std::int32_t, std::uint32_t* allowed,
                          std::int32_t words) {
        for (std::int32_t i = 0; i < words; ++i) allowed[i] = *static_cast<std::uint32_t*>(user);
      };
    std::int32_t chosen = 0;
    const std::int32_t count = input_.ConsumeIntegralInRange(-1, kMostTokens);
    const lathe_status status = lathe_session_generate_until(
        any(sessions_), token(), input_.ConsumeBool() ? &run : nullptr, tokens.data(), count,
        input_.ConsumeIntegralInRange(0, 15) ? &chosen : nullptr);
    seen(status);
    lathe::fuzz::require(status != LATHE_OK || (chosen >= 0 && chosen <= count));
  }

  void set_sampling() {
    auto sampling = sized<lathe_sampling>();
    for (float* value :
         {&sampling.temperature, &sampling.top_p, &sampling.min_p, &sampling.repeat_penalty}) {
      std::uint32_t bits = input_.ConsumeIntegral<std::uint32_t>();
      if (bits % 2) {
        *value = input_.ConsumeFloatingPointInRange(0.0f, 2.0f);
      } else {
        std::memcpy(value, &bits, sizeof bits);
      }
    }
    sampling.top_k = number(-1, 65);
    sampling.repeat_last = number(-1, 257);
    sampling.seed = input_.ConsumeIntegral<std::uint64_t>();
    seen(lathe_session_set_sampling(any(sessions_), input_.ConsumeBool() ? &sampling : nullptr));
  }

  void move_kv() {
    std::array<float, 256> values = {};
    const lathe_kv_range range = {number(-1, 2), number(-1, 2), number(-1, 3), number(-1, 4)};
    const auto count = std::min<std::int64_t>(number(-1, 256), std::ssize(values));
    float* at = input_.ConsumeIntegralInRange(0, 7) ? values.data() : nullptr;
    seen(lathe_session_read_kv(any(sessions_), &range, at, count));
    seen(lathe_session_write_kv(any(sessions_), &range, at, count));
  }

  void capture() {
    std::array<float, 512> keys, values;
    std::int32_t vectors = 0;
    const bool sized = input_.ConsumeBool();
    seen(lathe_session_capture_kv(any(sessions_), number(-1, 4), number(-1, 9),
                                  sized ? keys.data() : nullptr, sized ? values.data() : nullptr,
                                  std::ssize(keys), &vectors));
  }

  void choose() {
    std::array<std::uint32_t, 4> allowed;
    for (std::uint32_t& word : allowed) word = input_.ConsumeIntegral<std::uint32_t>();
    const std::int32_t words = input_.ConsumeIntegralInRange(-1, int(allowed.size()));
    const std::uint32_t* at = input_.ConsumeIntegralInRange(0, 7) ? allowed.data() : nullptr;
    std::array<lathe_scored_token, 64> tokens;
    std::array<std::int32_t, 4> ids = {token(), token(), token(), token()};
    std::array<float, 16> logits;
    std::int32_t count = 0, chosen = 0;
    seen(lathe_session_get_likeliest(any(sessions_), at, words, number(-1, 65), tokens.data(),
                                     &count));
    seen(lathe_session_get_likeliest_of(any(sessions_), ids.data(), number(-1, 4) & 3, &chosen));
    seen(lathe_session_choose(any(sessions_), at, words, &chosen));
    seen(lathe_session_read_logits(any(sessions_), number(-1, 80), logits.data(), 16));
  }

  // These functions leave the last error as it was, also where they refuse.
  void errors() {
    fill<lathe_error>([](lathe_error* error) {
      const lathe_status status = lathe_last_error(error);
      lathe::fuzz::require(status == LATHE_OK || status == LATHE_INVALID_ARGUMENT);
      return LATHE_OK;
    });
    const char *name = nullptr, *value = nullptr;
    const lathe_status status = lathe_last_error_detail(number(-1, 4), &name, &value);
    lathe::fuzz::require(status != LATHE_OK || (name && value));
    lathe::fuzz::require(lathe_status_text(number(-1, 14)) != nullptr);
  }

  FuzzedDataProvider& input_;
  std::deque<std::string> texts_;  // whose addresses stay
  std::vector<lathe_key*> keys_;
  std::vector<lathe_compilers*> compilers_;
  std::vector<lathe_ptx*> ptx_;
  std::vector<lathe_model*> models_;
  std::vector<lathe_session*> sessions_;
  std::vector<lathe_snapshot*> snapshots_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  Caller caller(input);
  for (int calls = 0; calls < kMostCalls && input.remaining_bytes() > 0; ++calls) caller.call();
  return 0;
}
