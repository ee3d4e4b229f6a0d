// Stands in for the driver and its management library: two devices, of which the second has no
// energy counter.
#include <cstdio>
#include <cstring>

namespace {

constexpr int kInvalid = 2;
constexpr int kNotSupported = 3;
int devices[2];
unsigned long long millijoules = 1'000'000;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 2 ? 0 : kInvalid;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device);
  return 0;
}
int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) {
  if (std::strcmp(address, "0000:00:00.0") == 0) *handle = &devices[0];
  if (std::strcmp(address, "0000:01:00.0") == 0) *handle = &devices[1];
  return *handle ? 0 : kInvalid;
}
// A quarter of a joule between two readings.
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* energy) {
  if (handle != &devices[0]) return kNotSupported;
  *energy = millijoules += 250;
  return 0;
}
}
