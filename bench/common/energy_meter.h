// Owns the reading of a GPU's energy counter, through the driver's management library.
#pragma once

#include <string>

#include "lathe/codegen/result.h"

namespace lathe::bench {

// Opened at run time, as they may be absent.
struct EnergyLibraries {
  std::string management = "libnvidia-ml.so.1";
  std::string driver = "libcuda.so.1";
};

// The counter moves in steps, on some cards ten a second, so that a difference says little about a
// time of that order.
class EnergyMeter {
 public:
  // Of the device that the CUDA driver counts as `ordinal`. The error says why its energy cannot be
  // measured.
  static Result<EnergyMeter> open(int ordinal, const EnergyLibraries& libraries = {});
  EnergyMeter(EnergyMeter&& other) noexcept;
  EnergyMeter& operator=(EnergyMeter&& other) noexcept;
  ~EnergyMeter();

  // Since the driver was loaded.
  Result<double> joules() const;

 private:
  EnergyMeter() = default;

  // Signatures of the management library, whose header need not be there.
  using Energy = int (*)(void* device, unsigned long long* millijoules);
  using Shutdown = int (*)();

  Shutdown shutdown_ = nullptr;
  Energy energy_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace lathe::bench
