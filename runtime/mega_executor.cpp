// Owns the mega executor: one persistent kernel for the steps of whole tokens, its records, and the
// checks that all of its blocks can run at once.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "codegen/kernels/matvec.h"
#include "lathe/codegen/program.h"
#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/step_records.h"
#include "runtime/device_memory.h"
#include "runtime/executor.h"
#include "runtime/service_kernel.h"

namespace lathe {
namespace {

static_assert(offsetof(ControlBlock, token) == offsetof(dev::TokenControl, token) &&
              offsetof(ControlBlock, position) == offsetof(dev::TokenControl, position) &&
              offsetof(ControlBlock, sampled) == offsetof(dev::TokenControl, sampled));
static_assert(StopTokens::kMost == dev::kMaxStops &&
              offsetof(StopTokens, ids) == offsetof(dev::StopTokens, ids));

template <class T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

// Takes the addresses of a step in the order of its kernel's parameters.
class Arguments {
 public:
  explicit Arguments(std::span<const std::uint64_t> values) : values_(values) {}
  template <class T>
  T* next(bool there = true) {
    return there ? pointer<T>(values_[at_++]) : nullptr;
  }

 private:
  std::span<const std::uint64_t> values_;
  std::size_t at_ = 0;
};

class Records {
 public:
  explicit Records(const Program& program)
      : program_(program),
        steps_(std::size_t(program.blocks)),
        entries_(std::size_t(program.blocks)) {}

  void add(const KernelKey& key, std::span<const std::uint64_t> values, bool last) {
    dev::StepRecord record{};
    if (key.type == KernelType::embed) {
      record.step = dev::kEmbedStep;
      Arguments arguments(values);
      record.embed.table = arguments.next<dev::u8>();
      arguments.next<void>();  // the token, which the kernel keeps
      record.embed.y = arguments.next<float>();
    } else if (key.type == KernelType::attend) {
      record.step = dev::kAttendStep;
      const auto found =
          std::find(program_.attends.begin(), program_.attends.end(), phase_key(key));
      record.variant = int(found - program_.attends.begin());
      record.attend = attend(key, values);
    } else {
      record.step = dev::kMatvecStep;
      return add_matvec(key, values, last, record);
    }
    for (auto& steps : steps_) steps.push_back(record);
  }

  // One block's after another's.
  std::vector<dev::StepRecord> steps() {
    for (auto& steps : steps_) place_all_sums(steps);
    return joined(steps_);
  }
  std::vector<dev::StreamEntry> entries() const { return joined(entries_); }

 private:
  template <class T>
  static std::vector<T> joined(const std::vector<std::vector<T>>& blocks) {
    std::vector<T> all;
    for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
    return all;
  }

  // Neighbours share the place of the partial sums: also those with an attention between them,
  // which a block without a part of it passes over with no barrier.
  void place_all_sums(std::vector<dev::StepRecord>& steps) const {
    std::vector<dev::MatvecShape*> shapes;
    for (dev::StepRecord& step : steps)
      if (step.step == dev::kMatvecStep) shapes.push_back(&step.matvec.shape);
    const auto sums = [&](std::size_t i) {
      return i < shapes.size() ? dev::all_sums(*shapes[i], program_.warps, program_.together) : 0;
    };
    for (std::size_t i = 0; i < shapes.size(); ++i)
      dev::place_sums(*shapes[i], program_.warps, program_.together,
                      std::max(i > 0 ? sums(i - 1) : 0, sums(i + 1)));
  }

  static dev::AttendOperands attend(const KernelKey& key, std::span<const std::uint64_t> values) {
    Arguments arguments(values);
    dev::AttendOperands o{};
    o.qkv = arguments.next<const float>();
    o.q_norm = arguments.next<const float>(key.qk_norm);
    o.k_norm = arguments.next<const float>(key.qk_norm);
    o.frequencies = arguments.next<const float>();
    arguments.next<void>();  // the position, which the kernel keeps
    o.k_cache = arguments.next<dev::u8>();
    o.v_cache = arguments.next<dev::u8>();
    o.partial = arguments.next<float>();
    o.counters = arguments.next<dev::u32>();
    o.y = arguments.next<float>();
    return o;
  }

  void add_matvec(const KernelKey& key, std::span<const std::uint64_t> values, bool last,
                  dev::StepRecord& record) {
    const Format formats[3] = {key.format, key.format_b, key.format_c};
    const int rows[3] = {key.n, key.n_b, key.n_c};
    Arguments arguments(values);
    const dev::u8* tiles[3] = {};
    for (int m = 0; m < 3; ++m) tiles[m] = arguments.next<const dev::u8>(rows[m] > 0);
    auto& o = record.matvec.operands;
    o.from = arguments.next<const float>();
    o.norm = arguments.next<const float>(key.norm);
    o.post = arguments.next<const float>(key.joined);
    o.stream_in = arguments.next<const float>(key.joined);
    o.stream_out = arguments.next<float>(key.joined);
    for (int m = 0; m < 3; ++m) o.bias[m] = arguments.next<const float>(key.bias && rows[m] > 0);
    o.residual = arguments.next<const float>(key.residual);
    o.y = arguments.next<float>();

    const int subs = tile_shape(key.format, key.n, key.k)->subs;
    const int columns = tile_shape(key.format, key.n, key.k)->tiles_per_row;
    auto& s = record.matvec.shape;
    s.k = key.k;
    s.subs = subs;
    s.columns = columns;
    s.inverse = dev::column_inverse(columns, program_.together);
    s.kind = key.gated ? dev::kGatedRows : last ? dev::kLogitRows : dev::kPlainRows;
    s.activation = int(key.activation);
    s.inverse_k = 1.0f / float(key.k);
    s.epsilon = key.epsilon;
    for (int m = 0; m < 3; ++m) {
      s.rows[m] = rows[m];
      s.format[m] = tile_number(rows[m] > 0 ? formats[m] : key.format);
    }
    for (int block = 0; block < program_.blocks; ++block) {
      dev::share_phase(s, block, program_.blocks);
      steps_[std::size_t(block)].push_back(record);
      for (int m = 0; m < 3; ++m) {
        if (rows[m] == 0) continue;
        const int bytes = tile_shape(formats[m], rows[m], key.k)->tile_bytes;
        entries_[std::size_t(block)].push_back(
            dev::stream_entry(tiles[m] + std::int64_t{s.first[m]} * columns * bytes, s.count[m],
                              columns, bytes, program_.together));
      }
    }
  }

  const Program& program_;
  std::vector<std::vector<dev::StepRecord>> steps_;
  std::vector<std::vector<dev::StreamEntry>> entries_;
};

template <class T>
std::int64_t bytes_of(const std::vector<T>& list) {
  return std::int64_t(list.size() * sizeof(T));
}

class MegaExecutor final : public Executor {
 public:
  explicit MegaExecutor(DeviceImpl& device) : device_(device) {}

  Result<void> prepare(const Plan& plan, BoundPlan& bound, ProgramBuild& build,
                       const Addresses& addresses, CUdeviceptr history,
                       std::vector<PreparedStep> tail, CUstream stream) {
    tail_ = std::move(tail);
    LATHE_ASSIGN(const Program program, build.program());
    has_logits_ = plan.logits.bytes > 0;
    LATHE_ASSIGN(ServiceKernel kernel, build.take());
    kernel_.emplace(std::move(kernel));
    LATHE_TRY(check_all_at_once(program));

    Records records(program);
    const auto count = std::size_t(program.steps);
    for (std::size_t i = 0; i < count; ++i)
      records.add(plan.steps[i].key, bound.arguments(i), has_logits_ && i + 1 == count);
    const std::vector<dev::StepRecord> steps = records.steps();
    const std::vector<dev::StreamEntry> entries = records.entries();
    const Context& context = device_.context();
    LATHE_ASSIGN(steps_, allocate_device(context, bytes_of(steps), "step records"));
    LATHE_ASSIGN(entries_, allocate_device(context, bytes_of(entries), "stream entries"));
    LATHE_ASSIGN(candidates_, allocate_device(context, program.blocks * 8, "candidates"));
    LATHE_ASSIGN(state_, allocate_device(context, sizeof(dev::PersistentState), "kernel state"));
    LATHE_ASSIGN(host_state_,
                 allocate_pinned(context, sizeof(dev::PersistentState), "kernel's state"));
    const Driver& driver = device_.driver();
    const StreamRest rest(context, stream);
    LATHE_DRIVER_CALL(driver, cuMemcpyHtoDAsync, steps_.get(), steps.data(),
                      std::size_t(bytes_of(steps)), stream);
    LATHE_DRIVER_CALL(driver, cuMemcpyHtoDAsync, entries_.get(), entries.data(),
                      std::size_t(bytes_of(entries)), stream);
    // What has not been written yet carries the tag that the first token does not have.
    LATHE_DRIVER_CALL(driver, cuMemsetD8Async, candidates_.get(), 0xff,
                      std::size_t(program.blocks * 8), stream);
    LATHE_DRIVER_CALL(driver, cuMemsetD8Async, state_.get(), 0, sizeof(dev::PersistentState),
                      stream);
    LATHE_DRIVER_CALL(driver, cuStreamSynchronize, stream);
    stream_ = stream;
    pointers_ = {
        steps_.get(),
        entries_.get(),
        addresses.control,
        state_.get(),
        candidates_.get(),
        history,
        addresses.control + offsetof(ControlBlock, sampling) + offsetof(SamplingState, recent),
        addresses.control + offsetof(ControlBlock, stops)};
    for (std::size_t i = 0; i < pointers_.size(); ++i) parameters_[i] = &pointers_[i];
    parameters_[pointers_.size()] = &tokens_;
    parameters_[pointers_.size() + 1] = &chooses_;
    return {};
  }

  Result<void> launch(CUstream stream, int tokens) override {
    if (greedy_ && has_logits_) return launch_kernel_of(stream, tokens, true);
    for (int i = 0; i < tokens; ++i) LATHE_TRY(launch_and_draw(stream));
    return {};
  }

  Result<void> record(CUstream stream) override { return launch_and_draw(stream); }

  Result<void> check() override {
    const Driver& driver = device_.driver();
    LATHE_DRIVER_CALL(driver, cuMemcpyDtoHAsync, host_state_.get(), state_.get(),
                      sizeof(dev::PersistentState), stream_);
    LATHE_DRIVER_CALL(driver, cuStreamSynchronize, stream_);
    if (static_cast<const dev::PersistentState*>(host_state_.get())->fault == 0) return {};
    return Error{
        Code::driver, "The persistent kernel gave up: a block waited too long for another.", {}}
        .with("hint", "open the session again, or use the graph executor");
  }

  std::int64_t checked_bytes() const override { return sizeof(dev::PersistentState); }

  std::string text() const override {
    const Geometry& g = kernel_->kernel.info.geometry;
    return fmt::format("the persistent kernel, {} blocks of {} threads", g.grid_x, g.threads);
  }

  void set_greedy(bool greedy) override { greedy_ = greedy; }

 private:
  // Blocks wait for each other, so all must run at the same time.
  Result<void> check_all_at_once(const Program& program) {
    int per_multiprocessor = 0;
    LATHE_DRIVER_CALL(device_.driver(), cuOccupancyMaxActiveBlocksPerMultiprocessor,
                      &per_multiprocessor, kernel_->kernel.function, program.warps * 32,
                      program.geometry().shared_bytes);
    const int multiprocessors = device_.profile().multiprocessors;
    if (per_multiprocessor * multiprocessors >= program.blocks) return {};
    return Error{Code::not_eligible,
                 fmt::format("no persistent kernel: {} blocks would have to run at once, and {} "
                             "multiprocessors take {} each",
                             program.blocks, multiprocessors, per_multiprocessor),
                 {}};
  }

  Result<void> launch_and_draw(CUstream stream) {
    LATHE_TRY(launch_kernel_of(stream, 1, false));
    for (const PreparedStep& step : tail_) {
      LATHE_TRY(lathe::check(device_.driver(),
                             launch_kernel(device_.driver(), *step.kernel, step.parameters, stream),
                             "cuLaunchKernel"));
    }
    return {};
  }

  Result<void> launch_kernel_of(CUstream stream, int tokens, bool chooses) {
    tokens_ = tokens;
    chooses_ = chooses ? 1 : 0;
    const Geometry& g = kernel_->kernel.info.geometry;
    return lathe::check(device_.driver(),
                        device_.driver().cuLaunchCooperativeKernel(
                            kernel_->kernel.function, g.grid_x, 1, 1, g.threads, 1, 1,
                            g.shared_bytes, stream, parameters_.data()),
                        "cuLaunchCooperativeKernel");
  }

  DeviceImpl& device_;
  std::optional<ServiceKernel> kernel_;
  DeviceBuffer steps_, entries_, candidates_, state_;
  PinnedBuffer host_state_;
  std::vector<PreparedStep> tail_;
  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, 8> pointers_ = {};
  std::array<void*, 10> parameters_ = {};
  int tokens_ = 0;
  int chooses_ = 1;
  bool greedy_ = true;
  bool has_logits_ = true;
};

}  // namespace

Result<std::unique_ptr<Executor>> mega_executor(DeviceImpl& device, const Plan& plan,
                                                BoundPlan& bound, ProgramBuild& build,
                                                const Addresses& addresses, CUdeviceptr history,
                                                std::vector<PreparedStep> tail, CUstream stream) {
  auto executor = std::make_unique<MegaExecutor>(device);
  LATHE_TRY(executor->prepare(plan, bound, build, addresses, history, std::move(tail), stream));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace lathe
