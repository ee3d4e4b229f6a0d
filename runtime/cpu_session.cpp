// Owns the cpu executor: a plan run through the oracles by a team of threads, with the weights
// read in place from the mapped file.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "codegen/stopwatch.h"
#include "lathe/codegen/kernel_table.h"
#include "runtime/binding.h"
#include "runtime/environment.h"
#include "runtime/session_base.h"
#include "runtime/session_choices.h"
#include "runtime/session_report.h"
#include "runtime/thread_team.h"

namespace lathe {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kMaxThreads = 1024;

// Host memory aligned as the device's pools are.
class HostBuffer {
 public:
  HostBuffer() = default;
  static Result<HostBuffer> allocate(std::int64_t bytes, const char* what) {
    HostBuffer buffer;
    buffer.bytes_ = bytes;
    buffer.data_.reset(
        ::operator new (std::size_t(bytes), std::align_val_t{kAlignment}, std::nothrow));
    if (buffer.data_) return buffer;
    return Error{Code::out_of_memory, fmt::format("There is no memory for the {}.", what), {}}.with(
        "needed", fmt::format("{}", bytes));
  }
  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(data_.get()); }
  // All bits set is NaN in f32, f16 and bf16: a read of what was never written shows.
  void poison() { std::memset(data_.get(), 0xff, std::size_t(bytes_)); }

 private:
  struct Free {
    void operator()(void* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<void, Free> data_;
  std::int64_t bytes_ = 0;
};

class CpuSession final : public SessionBase {
 public:
  CpuSession(std::shared_ptr<const GgufFile> file, Plan plan, int threads, bool time_steps)
      : SessionBase(std::move(file), std::move(plan), ExecutorKind::cpu),
        times_(time_steps ? plan_.steps.size() : 0),
        team_(threads) {
    report_.device = fmt::format("CPU, {} thread{}", team_.parts(), team_.parts() == 1 ? "" : "s");
    report_.routes = fmt::format("oracle {} kernels", plan_.distinct_keys().size());
  }

  Result<void> prepare() {
    report_.choices.insert(report_.choices.begin(), told_of_cpu());
    report_.notes = read_environment().problems;
    report_unused(plan_.options, plan_.distinct_keys(), report_);
    LATHE_ASSIGN(scratch_, HostBuffer::allocate(plan_.arena_bytes, "scratch arena"));
    LATHE_ASSIGN(kv_, HostBuffer::allocate(kv_pool_bytes(plan_), "KV cache"));
    scratch_.poison();
    kv_.poison();

    Addresses& addresses = addresses_;
    for (const WeightSlot& slot : plan_.weights) {
      LATHE_ASSIGN(const std::uint64_t address, weight(slot));
      addresses.weights.push_back(address);
    }
    for (const Table& table : plan_.tables) {
      addresses.tables.push_back(reinterpret_cast<std::uintptr_t>(table.values.data()));
    }
    place_kv(plan_, kv_.address(), addresses);
    addresses.scratch = scratch_.address();
    addresses.control = reinterpret_cast<std::uintptr_t>(&control_);
    counters_.resize(std::size_t(plan_.counter_bytes / 4));
    addresses.counters = reinterpret_cast<std::uintptr_t>(counters_.data());
    LATHE_ASSIGN(BoundPlan bound, BoundPlan::bind(plan_, addresses, Alignment::element));
    bound_.emplace(std::move(bound));
    return {};
  }

  Result<void> step(std::int32_t token) override {
    LATHE_TRY(check_step(token));
    decode(token);
    return {};
  }

  Result<void> take_hidden(std::span<const float> state, std::int32_t token) override {
    std::memcpy(scratch_.data() + plan_.input.offset, state.data(), state.size_bytes());
    decode(token);
    return {};
  }

  Result<int> generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                             std::span<const std::int32_t> stops,
                             const std::function<void(std::int32_t)>& each) override {
    LATHE_TRY(check_runs());
    LATHE_TRY(check_stops(stops));
    if (tokens.empty()) return 0;
    LATHE_TRY(check_step(token, std::int64_t(tokens.size())));
    int count = 0;
    for (std::int32_t& sampled : tokens) {
      LATHE_TRY(step(token));
      sampled = control_.sampled;
      token = control_.token;  // 0 in place of -1, which is no token
      ++count;
      if (each) each(sampled);
      if (std::ranges::find(stops, sampled) != stops.end()) break;
    }
    ended_early_ = count < int(tokens.size());
    return count;
  }

  Result<std::int32_t> sampled() override {
    LATHE_TRY(check_chosen());
    return control_.sampled;
  }

  Result<std::span<const float>> logits() override {
    LATHE_TRY(check_logits());
    const std::byte* at = scratch_.data() + plan_.logits.offset;
    return std::span(reinterpret_cast<const float*>(at), std::size_t(plan_.spec.vocab));
  }

  Result<double> read_rate() override { return 0.0; }

 private:
  Result<void> write_sampling(const SamplingState& state, std::size_t offset,
                              std::size_t bytes) override {
    const auto* from = reinterpret_cast<const std::byte*>(&state) + offset;
    std::memcpy(reinterpret_cast<std::byte*>(&control_.sampling) + offset, from, bytes);
    return {};
  }

  Result<void> fetch_logits(int first, std::span<float> to) override {
    LATHE_ASSIGN(const std::span<const float> all, logits());
    std::copy_n(all.begin() + first, to.size(), to.begin());
    return {};
  }

  Result<void> fetch_hidden(std::span<float> to) override {
    std::memcpy(to.data(), scratch_.data() + plan_.hidden.offset, to.size_bytes());
    return {};
  }

  Result<std::vector<double>> fetch_times() override { return times_; }

  const Addresses& addresses() const override { return addresses_; }
  Result<void> move_kv(std::span<const KvCopy> copies, KvMove move) override {
    return move_on_host(copies, move);
  }

  void decode(std::int32_t token) {
    control_.token = token;
    control_.position = length_;
    team_.run([](void* self, int part) { static_cast<CpuSession*>(self)->run(part); }, this);
    control_.advance();
    note_step(token);
  }

  void run(int part) {
    Stopwatch since;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const KernelKey& key = plan_.steps[i].key;
      row(key.type).oracle(key, bound_->host_arguments(i), part, team_.parts());
      // The next step may read what any part of this one has written.
      if (i + 1 < plan_.steps.size()) team_.meet();
      if (part > 0 || times_.empty()) continue;
      times_[i] = 1e3 * since.milliseconds();
      since = Stopwatch();
    }
  }

  // In place when the file's layout allows, else an aligned copy.
  Result<std::uint64_t> weight(const WeightSlot& slot) {
    const std::byte* data = file_->data(*file_->tensor(slot.name)).data();
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    if (address % std::uintptr_t(lathe::row(slot.format).alignment) == 0) return address;
    LATHE_ASSIGN(HostBuffer copy, HostBuffer::allocate(slot.bytes, "copy of a misaligned weight"));
    std::memcpy(copy.data(), data, std::size_t(slot.bytes));
    copies_.push_back(std::move(copy));
    return copies_.back().address();
  }

  HostBuffer scratch_;
  HostBuffer kv_;
  Addresses addresses_;
  std::vector<HostBuffer> copies_;
  std::vector<std::int32_t> counters_;
  alignas(16) ControlBlock control_;
  std::optional<BoundPlan> bound_;
  std::vector<double> times_;  // microseconds of each step, where they are wanted
  ThreadTeam team_;            // last: its threads end before what they use
};

}  // namespace

Result<std::unique_ptr<Session>> open_cpu_session(std::shared_ptr<const GgufFile> file, Plan plan,
                                                  const SessionOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return Error{Code::invalid_argument,
                 fmt::format("{} threads: the cpu executor takes 1 to {}, or 0 for all cores.",
                             options.threads, kMaxThreads),
                 {}};
  }
  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = options.threads ? options.threads : std::min(cores, kMaxThreads);
  auto session =
      std::make_unique<CpuSession>(std::move(file), std::move(plan), threads, options.time_steps);
  LATHE_TRY(session->prepare());
  LATHE_TRY(session->hold_to_oracles(options));
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace lathe
