// Owns the making of a kernel: routes in order, disk cache, load; and single flight per key.
#include "runtime/module_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "codegen/stopwatch.h"
#include "runtime/cache_entry.h"
#include "runtime/cached_kernel.h"
#include "runtime/trace_range.h"

namespace lathe {

// A key on its way, or arrived.
struct ModuleMap::Flight {
  bool landed = false;
  std::optional<Kernel> kernel;
  Error error;
};

namespace {

constexpr unsigned kDefaultSharedLimit = 48 * 1024;

}  // namespace

ModuleMap::ModuleMap(const Context& context, const Toolchain& toolchain, const DiskCache* cache,
                     std::vector<Route> routes, const KernelTrace* trace)
    : context_(context),
      toolchain_(toolchain),
      cache_(cache),
      routes_(std::move(routes)),
      trace_(trace) {}

ModuleMap::~ModuleMap() {
  const auto scope = context_.enter();
  if (!scope) return;  // the context is gone, and its libraries with it
  const auto unload = [&](const auto& flights) {
    for (const auto& [name, flight] : flights) {
      if (flight->kernel) context_.driver().cuLibraryUnload(flight->kernel->library);
    }
  };
  unload(flights_);
  unload(custom_flights_);
}

template <typename Name, typename Make>
Result<const Kernel*> ModuleMap::land(std::map<Name, std::shared_ptr<Flight>>& flights,
                                      const Name& name, const Make& make) {
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    if (const auto found = flights.find(name); found != flights.end()) {
      flight = found->second;
      landed_.wait(lock, [&] { return flight->landed; });
      if (!flight->kernel) return flight->error;
      ++from_memory_;
      return &*flight->kernel;
    }
    flight = std::make_shared<Flight>();
    flights.emplace(name, flight);
  }

  // Others wait for this flight: it must land whatever happens.
  Result<Kernel> made = [&]() -> Result<Kernel> {
    try {
      return make();
    } catch (const std::bad_alloc&) {
      return Error{Code::out_of_memory, "There is no host memory to build a kernel.", {}};
    }
  }();
  std::lock_guard lock(mutex_);
  flight->landed = true;
  landed_.notify_all();
  if (!made) {
    // Whoever waits has the flight and takes its error; whoever comes later tries again.
    flights.erase(name);
    flight->error = made.error();
    return std::move(made).error();
  }
  flight->kernel = std::move(made).value();
  ++(flight->kernel->info.from_cache ? from_disk_ : built_);
  return &*flight->kernel;
}

Result<const Kernel*> ModuleMap::get(const KernelKey& key) {
  return land(flights_, key, [&] { return make(key); });
}

Result<const Kernel*> ModuleMap::get(const CustomKernel& custom) {
  LATHE_TRY(check_custom_kernel(custom));
  LATHE_ASSIGN(const Kernel* kernel, land(custom_flights_, custom.name, [&] {
                 return make(std::make_shared<const CustomKernel>(custom));
               }));
  if (*kernel->custom == custom) return kernel;
  return Error{Code::invalid_argument,
               fmt::format("Another kernel is loaded under the name {}.", custom.name),
               {}};
}

Result<void> ModuleMap::prepare(std::span<const KernelKey> keys, const Progress& progress,
                                const std::function<bool()>& cancelled) {
  LATHE_TRY(check_covered(keys));
  std::vector<std::optional<Error>> errors(keys.size());
  std::atomic<std::size_t> next = 0;
  std::mutex done_mutex;
  std::condition_variable done_changed;
  std::size_t done = 0;

  const auto work = [&] {
    for (std::size_t i; (i = next++) < keys.size();) {
      if (auto kernel = get(keys[i]); !kernel) errors[i] = std::move(kernel).error();
      std::lock_guard lock(done_mutex);
      ++done;
      done_changed.notify_one();
    }
  };
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;  // joined even when `progress` throws
  try {
    for (std::size_t i = 0; i < std::min(cores, keys.size()); ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // With fewer threads it only takes longer.
    if (threads.empty()) work();
  }
  // Progress is told here, on the caller's thread.
  bool ended = false;
  for (std::size_t told = 0; told < keys.size() && !ended;) {
    {
      std::unique_lock lock(done_mutex);
      done_changed.wait(lock, [&] { return done > told; });
      told = done;
    }
    if (progress) progress("preparing kernels", std::int64_t(told), std::int64_t(keys.size()));
    ended = cancelled && cancelled();
    if (ended) next = keys.size();
  }
  for (std::jthread& thread : threads) thread.join();
  if (cache_) cache_->trim();
  if (ended) {
    return Error{Code::cancelled, "The preparation of kernels was cancelled by the caller.", {}};
  }
  for (std::optional<Error>& error : errors) {
    if (error) return *std::move(error);
  }
  return {};
}

Result<void> ModuleMap::check_covered(std::span<const KernelKey> keys) const {
  for (const KernelKey& key : keys) {
    Error error{Code::unsupported, "", {}};
    bool covered = false;
    for (const Route route : routes_) {
      const Result<void> covers = toolchain_.covers(key, route);
      covered = covered || bool(covers);
      if (!covers) error.details.push_back({route_name(route), covers.error().message});
    }
    if (covered) continue;
    error.message = fmt::format("No route that was asked for makes kernel {}.", key.text());
    return error;
  }
  return {};
}

Result<Kernel> ModuleMap::make(const KernelKey& key) {
  LATHE_TRY(check_key(key));
  const TraceRange range(("build " + key.text()).c_str());
  LATHE_ASSIGN(ContextScope scope, context_.enter());
  Error refusals{Code::unsupported, "", {}};
  std::string passed_over;
  for (const Route route : routes_) {
    Result<void> covers = toolchain_.covers(key, route);
    Result<Kernel> made = covers ? make_by(route, key) : Result<Kernel>(covers.error());
    if (made) {
      if (!passed_over.empty()) {
        note(fmt::format("{} took {}; {}", route_name(route), key.text(), passed_over));
      }
      tell(key.text(), made->info);
      return made;
    }
    Error& error = made.error();
    if (trace_) trace_->tell("refused", key.text(), route_name(route), error);
    // A driver or memory failure is not the route's, and would only repeat itself on the next.
    if (error.code == Code::driver || error.code == Code::out_of_memory) {
      return std::move(error).with("key", key.text());
    }
    passed_over += fmt::format("{}{} refused: {}", passed_over.empty() ? "" : "; ",
                               route_name(route), error.message);
    refusals.code = error.code;
    refusals.details.push_back({route_name(route), error.message});
    for (Detail& detail : error.details) refusals.details.push_back(std::move(detail));
  }
  refusals.message =
      fmt::format("Kernel {} cannot be made for {}.", key.text(), context_.target().name());
  return refusals;
}

Result<Kernel> ModuleMap::make_by(Route route, const KernelKey& key) {
  const Target& target = context_.target();
  const Assembler& assembler = toolchain_.assembler();
  LATHE_ASSIGN(const std::string compiler, toolchain_.compiler(route));
  const std::vector<Param> params = row(key.type).params(key);
  KernelInfo info;
  info.name = key.text();
  info.key = key;
  info.route = route;
  info.compiler = compiler;

  const std::string kernel_key =
      record_key(key.text(), target, route, compiler, toolchain_.fingerprint(), assembler);
  // What the driver refuses of the cache's is not worth keeping: it is built.
  if (const auto cached = cache_ ? find_kernel(*cache_, kernel_key) : std::nullopt) {
    info.geometry = cached->record.geometry;
    info.from_cache = true;
    if (auto kernel = load(info, params, cached->record.entry, cached->cubin)) return kernel;
  }

  LATHE_ASSIGN(const Ptx ptx, toolchain_.emit(key, target, route));
  info.emit_ms = ptx.milliseconds;
  info.geometry = ptx.geometry;
  const std::string content_key = cubin_key(ptx.text, target, assembler);
  const KernelRecord record{cache_digest(content_key), ptx.entry, ptx.geometry};
  if (const auto known = cache_ ? cache_->find(content_key) : std::nullopt) {
    info.from_cache = true;
    if (auto kernel = load(info, params, ptx.entry, *known)) {
      keep_record(*cache_, kernel_key, record);
      return kernel;
    }
  }
  info.from_cache = false;
  LATHE_ASSIGN(const Cubin cubin, assemble(key.text(), ptx.text, info));
  LATHE_ASSIGN(Kernel kernel, load(info, params, ptx.entry, cubin));
  if (cache_ && keep_cubin(*cache_, content_key, cubin)) keep_record(*cache_, kernel_key, record);
  return kernel;
}

Result<Cubin> ModuleMap::assemble(std::string_view subject, const std::string& ptx,
                                  KernelInfo& info) const {
  const Assembler& assembler = toolchain_.assembler();
  const std::string digest = cache_digest(ptx);
  {
    std::lock_guard lock(mutex_);
    if (const auto found = refused_.find(digest); found != refused_.end()) return found->second;
  }
  const std::string name = fmt::format("{}.{}", subject, route_name(info.route));
  const std::string path =
      trace_ ? trace_->dump(name, "ptx", std::as_bytes(std::span(ptx))) : std::string();
  const Stopwatch assembling;
  Result<Cubin> cubin = assembler.assemble(ptx, context_.target());
  info.assemble_ms = assembling.milliseconds();
  if (cubin) {
    info.cubin_bytes = std::int64_t(cubin->size());
    if (trace_) trace_->dump(name, "cubin", *cubin);
    return cubin;
  }
  Error error = std::move(cubin).error();
  if (!path.empty()) error.details.push_back({"path", path});
  // A driver that failed may recover; PTX that was refused is no better the next time.
  if (error.code == Code::compile) {
    std::lock_guard lock(mutex_);
    refused_.emplace(digest, error);
  }
  return error;
}

void ModuleMap::tell(std::string_view subject, const KernelInfo& info) const {
  if (trace_) trace_->tell(info.from_cache ? "cached" : "built", subject, info);
}

Result<Kernel> ModuleMap::load(const KernelInfo& info, std::vector<Param> params,
                               const std::string& entry, const Cubin& cubin) {
  const Stopwatch loading;
  Kernel kernel;
  kernel.info = info;
  kernel.info.cubin_bytes = std::int64_t(cubin.size());
  kernel.params = std::move(params);
  kernel.waits = info.key.early;
  const Driver& driver = context_.driver();
  LATHE_DRIVER_CALL(driver, cuLibraryLoadData, &kernel.library, cubin.data(), nullptr, nullptr, 0,
                    nullptr, nullptr, 0);
  Result<void> finished = finish(kernel, entry);
  kernel.info.load_ms = loading.milliseconds();
  if (finished) return kernel;
  driver.cuLibraryUnload(kernel.library);
  return std::move(finished).error();
}

Result<void> ModuleMap::finish(Kernel& kernel, const std::string& entry) {
  const Driver& driver = context_.driver();
  CUkernel handle = nullptr;
  LATHE_DRIVER_CALL(driver, cuLibraryGetKernel, &handle, kernel.library, entry.c_str());
  const auto attribute = [&](CUfunction_attribute which, int& out) {
    return check(driver, driver.cuKernelGetAttribute(&out, which, handle, context_.device()),
                 "cuKernelGetAttribute");
  };
  int max_threads = 0;
  LATHE_TRY(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, kernel.info.registers));
  LATHE_TRY(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel.info.local_bytes));
  LATHE_TRY(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel.info.shared_bytes));
  LATHE_TRY(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, max_threads));
  const Geometry& geometry = kernel.info.geometry;
  if (geometry.threads > unsigned(max_threads)) {
    return Error{
        Code::unsupported,
        fmt::format("{} wants blocks of {} threads; its {} registers allow {}.", kernel.info.name,
                    geometry.threads, kernel.info.registers, max_threads),
        {}};
  }
  const int shared_limit = context_.profile().block_shared_bytes;
  const std::int64_t shared = std::int64_t{geometry.shared_bytes} + kernel.info.shared_bytes;
  if (shared > shared_limit) {
    return Error{Code::unsupported,
                 fmt::format("{} needs {} bytes of shared memory per block; the device has {}.",
                             kernel.info.name, shared, shared_limit),
                 {}};
  }
  // Beyond the default a kernel must ask.
  if (shared > kDefaultSharedLimit) {
    LATHE_DRIVER_CALL(driver, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                      int(geometry.shared_bytes), handle, context_.device());
  }
  // Last: it is what makes the driver load the code.
  LATHE_DRIVER_CALL(driver, cuKernelGetFunction, &kernel.function, handle);
  return {};
}

bool ModuleMap::loaded(const KernelKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = flights_.find(key);
  return found != flights_.end() && found->second->landed;
}

KernelCounts ModuleMap::counts() const {
  return {built_, from_disk_, from_memory_};
}

void ModuleMap::note(std::string text) {
  std::lock_guard lock(mutex_);
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
    notes_.push_back(std::move(text));
  }
}

std::vector<std::string> ModuleMap::notes() const {
  const std::string trouble = cache_ ? cache_->trouble() : std::string();
  std::lock_guard lock(mutex_);
  std::vector<std::string> notes = notes_;
  if (!trouble.empty()) notes.push_back("disk cache: not written. " + trouble);
  return notes;
}

}  // namespace lathe
