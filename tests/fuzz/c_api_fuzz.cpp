// Calls the C functions in an order and with arguments that the input chooses: handles that are
// open, closed, of another kind or null; structs of any size; numbers of any value. Devices are
// those of a driver made of host memory, whose kernels are the oracles.
#include "tests/fuzz/c_caller.h"

namespace lathe::fuzz {
namespace {

constexpr int kMostCalls = 64;

// These functions leave the last error as it was, also where they refuse.
void call_errors(Caller& c) {
  c.fill<lathe_error>([](lathe_error* error) {
    const lathe_status status = lathe_last_error(error);
    require(status == LATHE_OK || status == LATHE_INVALID_ARGUMENT);
    return LATHE_OK;
  });
  const char *name = nullptr, *value = nullptr;
  const lathe_status status =
      lathe_last_error_detail(c.number(-1, 4), c.place(name), c.place(value));
  require(status != LATHE_OK || (name && value));
  require(lathe_status_text(c.number(-1, 14)) != nullptr);
  require(lathe_version() ==
              100 * (100 * LATHE_VERSION_MAJOR + LATHE_VERSION_MINOR) + LATHE_VERSION_PATCH &&
          lathe_abi_version() == LATHE_ABI_VERSION && lathe_version_text() != nullptr);
}

// What is there from the beginning, so that most calls have something to work on.
void begin(Caller& c) {
  const int what = c.one_of(64);
  if (what & 1) open_usual_models(c);
  if (what & 2) open_usual_device(c);
  if (what & 4) open_session(c);
  if (what & 8) open_usual_session(c);
  if (what & 16) open_usual_batch(c);
  if (what & 32) open_usual_dense(c);
}

void call(Caller& c) {
  switch (c.one_of(14)) {
    case 0:
      return call_kernels(c);
    case 1:
      return call_devices(c);
    case 2:
      return call_models(c);
    case 3:
    case 4:
    case 5:
      return call_sessions(c);
    case 6:
    case 7:
      return call_services(c);
    case 8:
    case 9:
      return call_batches(c);
    case 10:
    case 11:
      return call_dense(c);
    case 12:
      return c.close_any();
    default:
      return call_errors(c);
  }
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  lathe::fuzz::Caller caller(input);
  lathe::fuzz::begin(caller);
  for (int calls = 0; calls < lathe::fuzz::kMostCalls && input.remaining_bytes() > 0; ++calls)
    lathe::fuzz::call(caller);
  return 0;
}
