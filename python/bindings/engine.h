// Owns what sessions and batches have in common in Python: the model they keep, one call at a time,
// options, what was chosen, arrays of numbers and sets of tokens.
#pragma once

#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device.h"

namespace lathe::python {

enum class Executor : std::int32_t {};  // its numbers are the C header's
enum class Fusion : std::int32_t {};
enum class KvFormat : std::int32_t {};
enum class KvPart : std::int32_t {};
enum class Blocks : std::int32_t {};

// A file, or bytes that stay as they are because Python's own are immutable.
struct Model {
  api::Model handle;
  nb::object bytes;
};

struct Snapshot {
  api::Snapshot handle;
};

// A session or a batch, `noun` in its errors.
template <typename Handle>
class Opened {
 public:
  Opened(const char* noun, Handle handle, nb::object needs)
      : noun_(noun), needs_(std::move(needs)), handle_(std::move(handle)) {}

  // Runs a call with it. One at a time, from one thread, and not from a callback.
  template <typename Call>
  auto use(const Call& call) {
    if (busy_.exchange(true))
      throw std::runtime_error(std::string("This ") + noun_ +
                               " is at work: in another thread, or below this callback.");
    struct Release {
      std::atomic<bool>& busy;
      ~Release() { busy = false; }
    } const release{busy_};
    if (!handle_) throw std::runtime_error(std::string("This ") + noun_ + " is closed.");
    return call(*handle_);
  }
  // The same without the interpreter's lock: the value of the call, or its error raised.
  template <typename Call>
  auto run(const Call& call) {
    return use([&](Handle& handle) { return value_of(unlocked([&] { return call(handle); })); });
  }
  void close() {
    if (!handle_) return;
    use([&](Handle&) {
      const nb::gil_scoped_release released;
      handle_.reset();
    });
    needs_.reset();
  }
  bool closed() const { return !handle_; }

 private:
  const char* noun_;
  nb::object needs_;  // the model, whose bytes are read; a device's hooks; the caller's weights
  std::optional<Handle> handle_;
  std::atomic<bool> busy_ = false;
};
using Session = Opened<api::Session>;
using Batch = Opened<api::Batch>;

template <std::size_t dimensions>
using Floats = nb::ndarray<nb::numpy, float, nb::ndim<dimensions>>;
// Numbers that Python may hand over in any array that is dense in host memory.
using GivenFloats = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<nb::numpy, std::uint32_t, nb::ndim<1>>;
using GivenWords = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An array of Python's own, of memory that it frees.
template <typename Array, typename Number>
Array owned(std::unique_ptr<Number[]> numbers, std::initializer_list<std::size_t> shape) {
  const nb::capsule owner(numbers.get(),
                          [](void* data) noexcept { delete[] static_cast<Number*>(data); });
  return Array(numbers.release(), shape, owner);
}
template <typename Number>
Floats<1> copied(std::span<Number> values) {
  auto copy = std::make_unique<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  return owned<Floats<1>>(std::move(copy), {values.size()});
}

// No set: every token is allowed.
inline std::span<const std::uint32_t> words_of(const std::optional<GivenWords>& allowed) {
  if (!allowed) return {};
  // An empty array would allow every token too; so does no other value.
  if (allowed->size() == 0) throw std::invalid_argument("A set of tokens has no words.");
  return {allowed->data(), allowed->size()};
}

// What is asked for by number: not less than nothing.
inline std::size_t checked_count(int count) {
  if (count < 0) throw nb::value_error("A count cannot be below 0.");
  return std::size_t(count);
}

inline lathe_sampling sampling_of(float temperature, int top_k, float top_p, float min_p,
                                  float repeat_penalty, int repeat_last, std::uint64_t seed) {
  if (repeat_last == 0)  // in C it stands for what is usual
    throw nb::value_error("repeat_last is 1 or more; a repeat_penalty of 1 looks at no token.");
  auto sampling = api::sized<lathe_sampling>();
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  sampling.min_p = min_p;
  sampling.repeat_penalty = repeat_penalty;
  sampling.repeat_last = repeat_last;
  sampling.seed = seed;
  return sampling;
}

template <typename Handle>
std::vector<std::string> notes(Opened<Handle>& self) {
  return self.use([](Handle& open) {
    std::vector<std::string> notes;
    const auto info = value_of(open.info());
    for (int i = 0; i < info.note_count; ++i) notes.emplace_back(value_of(open.note(i)));
    return notes;
  });
}

// What was chosen, its value, and the reason.
using Choice = std::tuple<std::string, std::string, std::string>;
template <typename Handle>
std::vector<Choice> choices(Opened<Handle>& self) {
  return self.use([](Handle& open) {
    std::vector<Choice> choices;
    const auto info = value_of(open.info());
    for (int i = 0; i < info.choice_count; ++i) {
      const auto choice = value_of(open.choice(i));
      choices.emplace_back(choice.what, choice.value, choice.reason);
    }
    return choices;
  });
}

// `read` and `write` move the numbers of some positions of a layer.
template <typename Handle, typename Read>
Floats<3> read_kv(Opened<Handle>& self, KvPart part, int layer, int first, int positions,
                  const Read& read) {
  const lathe_session_info info = self.use([](Handle& open) { return value_of(open.info()); });
  const auto rows = std::size_t(std::max(positions, 0));
  const auto heads = std::size_t(info.kv_heads), dim = std::size_t(info.head_dim);
  // Not more than there can be: what is wrong is the library's to say.
  const std::size_t room = positions > info.context ? 0 : rows * heads * dim;
  auto values = std::make_unique<float[]>(room);
  const lathe_kv_range range = {number(part), layer, first, positions};
  self.use([&](Handle& open) {
    expect(unlocked([&] { return read(open, range, std::span(values.get(), room)); }));
  });
  return owned<Floats<3>>(std::move(values), {rows, heads, dim});
}
template <typename Handle, typename Write>
void write_kv(Opened<Handle>& self, KvPart part, int layer, int first, const GivenFloats& values,
              const Write& write) {
  const lathe_session_info info = self.use([](Handle& open) { return value_of(open.info()); });
  if (std::int64_t(values.shape(1)) != info.kv_heads ||
      std::int64_t(values.shape(2)) != info.head_dim)
    throw std::invalid_argument(
        "Keys and values are by position, KV head and element: each position has " +
        std::to_string(info.kv_heads) + " x " + std::to_string(info.head_dim) + " of them, not " +
        std::to_string(values.shape(1)) + " x " + std::to_string(values.shape(2)) + ".");
  const lathe_kv_range range = {number(part), layer, first, std::int32_t(values.shape(0))};
  self.use([&](Handle& open) {
    expect(unlocked([&] { return write(open, range, std::span(values.data(), values.size())); }));
  });
}

// An answer of the program's that may be of any type: no is what is false.
bool says_yes(Callback& question);

// What the opening of a session or a batch asks of the program.
class Opening {
 public:
  // Name of a tensor: its address on the device, and its bytes there.
  using Weights = std::map<std::string, std::pair<std::uint64_t, std::int64_t>>;

  Opening(nb::object progress, nb::object cancel, Weights weights)
      : progress_(std::move(progress)), cancel_(std::move(cancel)), weights_(std::move(weights)) {}
  Opening(const Opening&) = delete;

  // The options call this object back.
  void ask_in(lathe_session_options& options);
  // Raises what a callback raised, or what was wrong with the weights.
  void rethrow();

 private:
  static std::int32_t cancelled(void* user);
  static std::uint64_t weight(void* user, const char* tensor, std::int32_t element,
                              std::int64_t bytes);

  Callback progress_;
  Callback cancel_;
  const Weights weights_;
  std::string wrong_;
};

struct OpenOptions {
  Executor executor;
  Fusion fusion;
  KvFormat kv_format;
  int context;
  int attention_splits;
  int threads;
  int chunk;
  int wait_limit_ms;
  const Device* device;
  std::uintptr_t stream;
  const char* tuning;
};
lathe_session_options session_options(const OpenOptions& given, Opening& opening);

// Sets of tokens, and snapshots.
void bind_snapshots(nb::module_& module);
void bind_services(nb::class_<Session>& session);
// Parts of models, and what sessions of them do.
void bind_part(nb::module_& module);
void bind_parts(nb::class_<Session>& session);

}  // namespace lathe::python
