// Fills a cache, in the folder it is given, with three kernels made by the tests' tool chain.
#include <cstdio>

#include "runtime/device_impl.h"
#include "tests/runtime/fake_driver.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const lathe::testing::FakeDriver fake;
  lathe::DeviceOptions options;
  options.routes = {lathe::Route::text};
  options.cache_directory = argv[1];
  const auto device = lathe::DeviceImpl::open(options, fake.platform());
  if (!device) return 1;
  for (int n : {64, 128, 192}) {
    lathe::KernelKey key{.type = lathe::KernelType::gemv, .format = lathe::Format::q8_0};
    key.k = 256;
    key.n = n;
    if (!(*device)->kernel(key)) return 1;
    std::puts(key.text().c_str());
  }
  return (*device)->cache() ? 0 : 1;
}
