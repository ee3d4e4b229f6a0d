// Owns a GPU's kernels, stream and scratch.
#include "device.h"

#include <array>

#include "ggml-impl.h"
#include "own_kernels.h"

namespace lathe_ggml {

bool driver_did(int status, const char* what) {
  if (status == 0) return true;
  const char* words = nullptr;
  if (driver()->error_string(status, &words) != 0 || !words) words = "unknown error";
  GGML_LOG_ERROR("lathe: %s: %s (%d)\n", what, words, status);
  return false;
}

void log_last_error(const char* what) {
  lathe_error error = {};
  error.struct_size = sizeof error;
  if (lathe_last_error(&error) == LATHE_OK) GGML_LOG_ERROR("lathe: %s: %s\n", what, error.text);
}

Device* Device::open(int ordinal) {
  static std::mutex opening;
  static std::unordered_map<int, std::unique_ptr<Device>> devices;
  const std::lock_guard lock(opening);
  std::unique_ptr<Device>& device = devices[ordinal];
  if (!device) {
    auto fresh = std::make_unique<Device>();
    if (!fresh->start(ordinal)) return nullptr;
    device = std::move(fresh);
  }
  return device.get();
}

bool Device::start(int ordinal) {
  const Driver& d = *driver();
  int handle = 0;
  if (!driver_did(d.device_get(&handle, ordinal), "choosing the GPU") ||
      !driver_did(d.retain_context(&context_, handle), "making a context"))
    return false;
  const ContextScope scope(context_);
  constexpr unsigned kNonBlocking = 1;
  if (!driver_did(d.create_stream(&stream_, kNonBlocking), "making a stream")) return false;
  lathe_device_options options = {};
  options.struct_size = sizeof options;
  options.device = ordinal;
  options.context = context_;
  if (lathe_device_open(&options, &lathe_) != LATHE_OK) {
    log_last_error("opening the GPU");
    return false;
  }
  return true;
}

lathe_status Device::load(const Step& step, lathe_kernel** kernel) {
  if (!step.key.empty()) {
    lathe_key* key = nullptr;
    lathe_status status = lathe_key_parse(step.key.c_str(), &key);
    if (status == LATHE_OK) status = lathe_kernel_load(lathe_, key, kernel);
    lathe_key_close(key);
    return status;
  }
  static constexpr std::array<lathe_custom_parameter, 6> kParameters = {
      {{"d", 1, 0}, {"a", 1, 0}, {"b", 1, 0}, {"c", 1, 0}, {"m", 1, 0}, {"s", 1, 0}}};
  const std::string name = name_of(step.own), source = source_of(step.own);
  lathe_custom_kernel custom = {};
  custom.struct_size = sizeof custom;
  custom.name = name.c_str();
  custom.source = source.c_str();
  custom.entry = step.own.entry;
  custom.language = LATHE_LANGUAGE_CUDA;
  custom.parameter_count = kParameters.size();
  custom.parameters = kParameters.data();
  custom.geometry = {step.own.grid_x, step.own.grid_y, step.own.threads, 0};
  return lathe_kernel_load_custom(lathe_, &custom, kernel);
}

const lathe_kernel* Device::kernel(const Step& step) {
  const std::string name = step.key.empty() ? name_of(step.own) : step.key;
  lathe_kernel*& kernel = kernels_[name];
  if (!kernel && load(step, &kernel) != LATHE_OK) {
    log_last_error(name.c_str());
    return nullptr;
  }
  return kernel;
}

std::uint64_t Device::scratch(std::int64_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  const Driver& d = *driver();
  if (scratch_) d.free(scratch_);  // waits for what uses it
  scratch_ = 0;
  scratch_bytes_ = 0;
  if (!driver_did(d.allocate(&scratch_, static_cast<std::size_t>(bytes)), "allocating scratch"))
    return scratch_ = 0;
  scratch_bytes_ = bytes;
  return scratch_;
}

}  // namespace lathe_ggml
