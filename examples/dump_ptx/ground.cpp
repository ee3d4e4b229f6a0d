// Owns the two grounds, and the marked bytes around each argument.
#include "examples/dump_ptx/ground.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "emulation/emulator.h"

namespace lathe::dump_ptx {

namespace {

using verification::Bytes;

constexpr std::byte kMark{0xc3};
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMargin = 2 * kAlignment;

Bytes marked(const Bytes& contents) {
  Bytes all(kMargin + contents.size() + kMargin, kMark);
  std::ranges::copy(contents, all.begin() + kMargin);
  return all;
}

// The contents, unless a byte around them has changed.
Result<Bytes> unmarked(const Bytes& all, const char* name) {
  const auto first = all.begin() + kMargin, last = all.end() - kMargin;
  const auto is_mark = [](std::byte byte) { return byte == kMark; };
  if (std::all_of(all.begin(), first, is_mark) && std::all_of(last, all.end(), is_mark))
    return Bytes(first, last);
  return Error{Code::internal, fmt::format("the kernel wrote beside its argument {}", name), {}};
}

class Gpu final : public Ground {
 public:
  explicit Gpu(std::unique_ptr<Workbench> bench) : bench_(std::move(bench)) {}

  std::string name() const override { return bench_->device().description(); }
  bool emulated() const override { return false; }
  const Target& target() const override { return bench_->device().target(); }

  void make(std::span<const KernelKey> keys, const Progress& progress) override {
    static_cast<void>(bench_->device().prepare(keys, progress));
  }

  Result<std::string> prepare(const KernelKey& key) override {
    LATHE_ASSIGN(kernel_, bench_->device().kernel(key));
    return std::string(route_name(bench_->device().info(*kernel_).route));
  }

  Result<std::vector<Bytes>> run(const KernelKey& key,
                                 const std::vector<Bytes>& arguments) override {
    Result<std::vector<Bytes>> after = run_on_bench(key, arguments);
    bench_->clear();
    return after;
  }

 private:
  Result<std::vector<Bytes>> run_on_bench(const KernelKey& key,
                                          const std::vector<Bytes>& arguments) {
    const std::vector<Param> params = row(key.type).params(key);
    std::vector<std::uint64_t> addresses;
    for (const Bytes& contents : arguments) {
      const Bytes all = marked(contents);
      LATHE_ASSIGN(const std::uint64_t base,
                   bench_->allocate(static_cast<std::int64_t>(all.size())));
      LATHE_TRY(bench_->write(base, all));
      addresses.push_back(base + kMargin);
    }
    LATHE_TRY(bench_->run(*kernel_, addresses));
    std::vector<Bytes> after;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Bytes all(arguments[i].size() + 2 * kMargin);
      LATHE_TRY(bench_->read(all, addresses[i] - kMargin));
      LATHE_ASSIGN(Bytes contents, unmarked(all, params[i].name));
      after.push_back(std::move(contents));
    }
    return after;
  }

  std::unique_ptr<Workbench> bench_;
  const Kernel* kernel_ = nullptr;
};

// The op that every route lowers, as the host's compiler builds it.
class Emulation final : public Ground {
 public:
  explicit Emulation(const Options& options) : target_(options.target), seed_(options.seed) {}

  std::string name() const override { return "this CPU"; }
  bool emulated() const override { return true; }
  const Target& target() const override { return target_; }
  void make(std::span<const KernelKey>, const Progress&) override {}
  Result<std::string> prepare(const KernelKey&) override { return std::string("emulation"); }

  Result<std::vector<Bytes>> run(const KernelKey& key,
                                 const std::vector<Bytes>& arguments) override {
    const std::vector<Param> params = row(key.type).params(key);
    std::vector<Block> blocks;
    std::vector<void*> pointers;
    for (const Bytes& contents : arguments) {
      const Bytes all = marked(contents);
      const std::size_t size = (all.size() + kAlignment - 1) / kAlignment * kAlignment;
      Block block(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)), std::free);
      if (!block)
        return Error{Code::out_of_memory,
                     fmt::format("there are no {} bytes of memory for an argument", size),
                     {}};
      std::ranges::copy(all, block.get());
      pointers.push_back(block.get() + kMargin);
      blocks.push_back(std::move(block));
    }
    LATHE_TRY(emulation::emulate(key, pointers, seed_));
    std::vector<Bytes> after;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::byte* first = blocks[i].get();
      LATHE_ASSIGN(Bytes contents,
                   unmarked({first, first + arguments[i].size() + 2 * kMargin}, params[i].name));
      after.push_back(std::move(contents));
    }
    return after;
  }

 private:
  using Block = std::unique_ptr<std::byte, void (*)(void*)>;

  const Target target_;
  const std::uint64_t seed_;
};

Result<std::unique_ptr<Ground>> open_gpu(const Options& options) {
  DeviceOptions wanted;
  wanted.routes = options.routes;
  wanted.compilers = options.compilers;
  wanted.disk_cache = false;  // what is verified is what is made now
  LATHE_ASSIGN(std::shared_ptr<Device> device, Device::open(wanted));
  LATHE_ASSIGN(std::unique_ptr<Workbench> bench, Workbench::open(std::move(device)));
  return std::unique_ptr<Ground>(std::make_unique<Gpu>(std::move(bench)));
}

}  // namespace

Result<std::unique_ptr<Ground>> open_ground(const Options& options, std::string& why) {
  if (!options.emulate) {
    Result<std::unique_ptr<Ground>> gpu = open_gpu(options);
    if (gpu || gpu.error().code != Code::no_driver) return gpu;
    why = gpu.error().message;
  }
  return std::unique_ptr<Ground>(std::make_unique<Emulation>(options));
}

}  // namespace lathe::dump_ptx
