// Owns the way from an ordinal of the CUDA driver to the same device in the management library: the
// two count in different orders, and only the bus address is the same in both.
#include "bench/common/energy_meter.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace lathe::bench {

namespace {

Error unavailable(std::string message) {
  return Error{Code::not_eligible, std::move(message), {}};
}

// Never closed: the driver's libraries keep threads of their own.
Result<void*> open_library(const std::string& name) {
  if (void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* reason = ::dlerror();
  return unavailable(fmt::format("{} cannot be opened: {}", name, reason ? reason : "no reason"));
}

template <typename Function>
Result<Function> find(void* library, const char* name) {
  if (void* symbol = ::dlsym(library, name)) return reinterpret_cast<Function>(symbol);
  return unavailable(fmt::format("the driver has no function {}", name));
}

Result<void> check(const char* call, int status) {
  if (status == 0) return {};
  return unavailable(fmt::format("{} failed with status {}", call, status));
}

Result<std::string> bus_address(int ordinal, const std::string& driver) {
  LATHE_ASSIGN(void* library, open_library(driver));
  LATHE_ASSIGN(const auto init, find<int (*)(unsigned)>(library, "cuInit"));
  LATHE_ASSIGN(const auto get, find<int (*)(int*, int)>(library, "cuDeviceGet"));
  LATHE_ASSIGN(const auto address,
               (find<int (*)(char*, int, int)>(library, "cuDeviceGetPCIBusId")));
  int device = 0;
  char text[64] = {};
  LATHE_TRY(check("cuInit", init(0)));
  LATHE_TRY(check("cuDeviceGet", get(&device, ordinal)));
  LATHE_TRY(check("cuDeviceGetPCIBusId", address(text, sizeof text, device)));
  return std::string(text);
}

}  // namespace

Result<EnergyMeter> EnergyMeter::open(int ordinal, const EnergyLibraries& libraries) {
  LATHE_ASSIGN(const std::string address, bus_address(ordinal, libraries.driver));
  LATHE_ASSIGN(void* library, open_library(libraries.management));
  LATHE_ASSIGN(const auto init, find<int (*)()>(library, "nvmlInit_v2"));
  LATHE_ASSIGN(const auto shutdown, find<Shutdown>(library, "nvmlShutdown"));
  LATHE_ASSIGN(const auto handle,
               (find<int (*)(const char*, void**)>(library, "nvmlDeviceGetHandleByPciBusId_v2")));
  EnergyMeter meter;
  LATHE_ASSIGN(meter.energy_, find<Energy>(library, "nvmlDeviceGetTotalEnergyConsumption"));
  LATHE_TRY(check("nvmlInit_v2", init()));
  meter.shutdown_ = shutdown;
  LATHE_TRY(check("nvmlDeviceGetHandleByPciBusId_v2", handle(address.c_str(), &meter.device_)));
  LATHE_TRY(meter.joules());  // not every device and driver has the counter
  return meter;
}

EnergyMeter::EnergyMeter(EnergyMeter&& other) noexcept {
  *this = std::move(other);
}

EnergyMeter& EnergyMeter::operator=(EnergyMeter&& other) noexcept {
  std::swap(shutdown_, other.shutdown_);
  std::swap(energy_, other.energy_);
  std::swap(device_, other.device_);
  return *this;
}

EnergyMeter::~EnergyMeter() {
  if (shutdown_) shutdown_();
}

Result<double> EnergyMeter::joules() const {
  unsigned long long millijoules = 0;
  LATHE_TRY(check("nvmlDeviceGetTotalEnergyConsumption", energy_(device_, &millijoules)));
  return static_cast<double>(millijoules) / 1e3;
}

}  // namespace lathe::bench
