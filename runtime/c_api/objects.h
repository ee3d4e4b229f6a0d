// Owns what stands behind the handles of the C interface, and the numbers of its enumerators.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lathe/c/batch.h"
#include "lathe/c/dense.h"
#include "lathe/c/engine.h"
#include "lathe/c/kernel.h"
#include "lathe/c/services.h"
#include "lathe/codegen/emit.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/model_spec.h"
#include "lathe/runtime/batch.h"
#include "lathe/runtime/dense_products.h"
#include "lathe/runtime/device.h"
#include "lathe/runtime/session.h"
#include "runtime/c_api/call.h"
#include "runtime/c_api/handle_table.h"

namespace lathe::c_api {

struct KeyObject {
  using Handle = lathe_key;
  static constexpr HandleKind kind = HandleKind::key;
  static constexpr const char* noun = "key";
  KernelKey key;
  std::string text;
  std::string entry;
  std::vector<Param> params;
};

struct CompilersObject {
  using Handle = lathe_compilers;
  static constexpr HandleKind kind = HandleKind::compilers;
  static constexpr const char* noun = "compilers handle";
  explicit CompilersObject(CompilerPaths paths) : compilers(std::move(paths)) {}
  Compilers compilers;
  std::mutex mutex;
  std::array<std::string, 3> versions;  // by Route, once asked for
};

struct PtxObject {
  using Handle = lathe_ptx;
  static constexpr HandleKind kind = HandleKind::ptx;
  static constexpr const char* noun = "PTX handle";
  Ptx ptx;
  std::string target;
};

struct DeviceObject {
  using Handle = lathe_device;
  static constexpr HandleKind kind = HandleKind::device;
  static constexpr const char* noun = "device";
  explicit DeviceObject(std::shared_ptr<Device> opened)
      : device(std::move(opened)),
        description(device->description()),
        target(device->target().name()),
        assembler(device->assembler()) {}
  const std::shared_ptr<Device> device;
  const std::string description, target, assembler;
  std::mutex mutex;
  std::vector<std::string> notes;  // only ever grows, as the device's do
};

struct KernelObject {
  using Handle = lathe_kernel;
  static constexpr HandleKind kind = HandleKind::kernel;
  static constexpr const char* noun = "kernel";
  std::shared_ptr<Device> device;
  const Kernel* kernel = nullptr;
  int params = 0;
};

struct ModelObject {
  using Handle = lathe_model;
  static constexpr HandleKind kind = HandleKind::model;
  static constexpr const char* noun = "model";
  std::shared_ptr<const GgufFile> file;
  Result<ModelSpec> spec;
};

struct SessionObject {
  using Handle = lathe_session;
  static constexpr HandleKind kind = HandleKind::session;
  static constexpr const char* noun = "session";
  std::unique_ptr<Session> session;
  int launches = 0;
  std::vector<std::string> kernels;  // the plan's keys as texts, once they were asked for
};

struct BatchObject {
  using Handle = lathe_batch;
  static constexpr HandleKind kind = HandleKind::batch;
  static constexpr const char* noun = "batch";
  std::unique_ptr<Batch> batch;
  int launches = 0;
};

struct SnapshotObject {
  using Handle = lathe_snapshot;
  static constexpr HandleKind kind = HandleKind::snapshot;
  static constexpr const char* noun = "snapshot";
  explicit SnapshotObject(KvSnapshot taken) : snapshot(std::move(taken)) {}
  const KvSnapshot snapshot;
};

struct DenseObject {
  using Handle = lathe_dense;
  static constexpr HandleKind kind = HandleKind::dense;
  static constexpr const char* noun = "dense products handle";
  std::unique_ptr<DenseProducts> products;
};

struct DenseCacheObject {
  using Handle = lathe_dense_cache;
  static constexpr HandleKind kind = HandleKind::dense_cache;
  static constexpr const char* noun = "dense cache";
  const std::shared_ptr<DenseWeightCache> cache = std::make_shared<DenseWeightCache>();
};

Result<DeviceOptions> device_options_of(const lathe_device_options& given);

// Tests open devices on a driver of their own.
inline Result<lathe_device*> open_device_handle(std::shared_ptr<Device> device) {
  return open_handle(std::make_unique<DeviceObject>(std::move(device)));
}

inline lathe_geometry geometry_of(const Geometry& g) {
  return {g.grid_x, g.grid_y, g.threads, g.shared_bytes};
}

inline std::int32_t number_of(Route route) {
  return static_cast<std::int32_t>(route) + 1;
}
static_assert(LATHE_ROUTE_NVRTC == static_cast<int>(Route::nvrtc) + 1 &&
              LATHE_ROUTE_LLVM == static_cast<int>(Route::llvm) + 1 &&
              LATHE_ROUTE_TEXT == static_cast<int>(Route::text) + 1);
// A route by its number; LATHE_ROUTE_DEFAULT is none.
inline Result<Route> route_of(std::int32_t number) {
  if (number < LATHE_ROUTE_NVRTC || number > LATHE_ROUTE_TEXT)
    return unknown_number("route", number);
  return static_cast<Route>(number - 1);
}

inline std::function<bool()> cancelled_of(lathe_cancel cancel, void* user) {
  if (!cancel) return {};
  return [=] { return cancel(user) != 0; };
}

inline Progress progress_of(lathe_progress progress, void* user) {
  if (!progress) return {};
  return [=](std::string_view what, std::int64_t done, std::int64_t total) {
    progress(user, std::string(what).c_str(), done, total);
  };
}

}  // namespace lathe::c_api
