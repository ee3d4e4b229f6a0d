// Owns what ggml sees of the back end: the registration, its devices, and the back end of each.
#include <deque>
#include <string>
#include <string_view>

#include "buffers.h"
#include "device.h"
#include "ggml-impl.h"
#include "graph.h"
#include "operations.h"
#include "own_kernels.h"

namespace lathe_ggml {
namespace {

// A GPU as ggml lists it. It is opened, and kernels are made, once a buffer or a back end is.
struct Listed {
  int ordinal = 0;
  std::string name, description;
  std::size_t memory = 0;
  ggml_backend_device device = {};
  ggml_backend_buffer_type buffer_type = {};
};

Listed& listed(ggml_backend_dev_t device) {
  return *static_cast<Listed*>(device->context);
}

struct Backend {
  Device* device;
  GraphRunner runner;
};

Backend& backend_of(ggml_backend_t backend) {
  return *static_cast<Backend*>(backend->context);
}

const char* backend_name(ggml_backend_t backend) {
  return listed(backend->device).name.c_str();
}

void free_backend(ggml_backend_t backend) {
  delete static_cast<Backend*>(backend->context);
  delete backend;
}

void set_tensor_async(ggml_backend_t backend, ggml_tensor* tensor, const void* data,
                      std::size_t offset, std::size_t size) {
  Device& device = *backend_of(backend).device;
  const std::lock_guard lock(device.mutex());
  const ContextScope scope(device.context());
  driver_did(driver()->to_device(reinterpret_cast<std::uint64_t>(tensor->data) + offset, data, size,
                                 device.stream()),
             "writing a tensor");
}

void get_tensor_async(ggml_backend_t backend, const ggml_tensor* tensor, void* data,
                      std::size_t offset, std::size_t size) {
  Device& device = *backend_of(backend).device;
  const std::lock_guard lock(device.mutex());
  const ContextScope scope(device.context());
  driver_did(driver()->to_host(data, reinterpret_cast<std::uint64_t>(tensor->data) + offset, size,
                               device.stream()),
             "reading a tensor");
}

void synchronize(ggml_backend_t backend) {
  Device& device = *backend_of(backend).device;
  const ContextScope scope(device.context());
  driver_did(driver()->wait(device.stream()), "waiting for the GPU");
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) {
  return backend_of(backend).runner.run(graph);
}

ggml_guid_t guid() {
  static ggml_guid id = {0x4c, 0x61, 0x74, 0x68, 0x65, 0x00, 0x4b, 0x9e,
                         0x83, 0x1d, 0x52, 0xc7, 0x06, 0xfa, 0x29, 0xb1};
  return &id;
}

const char* device_name(ggml_backend_dev_t device) {
  return listed(device).name.c_str();
}
const char* device_description(ggml_backend_dev_t device) {
  return listed(device).description.c_str();
}

void device_memory(ggml_backend_dev_t device, std::size_t* free, std::size_t* total) {
  *free = *total = listed(device).memory;
  Device* opened = Device::open(listed(device).ordinal);
  if (!opened) return;
  const ContextScope scope(opened->context());
  driver_did(driver()->memory_info(free, total), "asking for free memory");
}

enum ggml_backend_dev_type device_type(ggml_backend_dev_t) {
  return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void device_properties(ggml_backend_dev_t device, ggml_backend_dev_props* properties) {
  *properties = {};
  properties->name = device_name(device);
  properties->description = device_description(device);
  properties->type = device_type(device);
  device_memory(device, &properties->memory_free, &properties->memory_total);
  properties->caps.async = true;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  Device* opened = Device::open(listed(device).ordinal);
  if (!opened) return nullptr;
  ggml_backend_i interface = {};
  interface.get_name = backend_name;
  interface.free = free_backend;
  interface.set_tensor_async = set_tensor_async;
  interface.get_tensor_async = get_tensor_async;
  interface.synchronize = synchronize;
  interface.graph_compute = compute;
  return new ggml_backend{guid(), interface, device, new Backend{opened, GraphRunner(opened)}};
}

ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t device) {
  return &listed(device).buffer_type;
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) {
  return refusal(op) == nullptr;
}

bool supports_buffer_type(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
  return type->device == device;
}

const char* registry_name(ggml_backend_reg_t) {
  return "Lathe";
}

std::deque<Listed>& devices(ggml_backend_reg_t registry) {
  static std::deque<Listed> list = [registry] {
    std::deque<Listed> found;
    const Driver* d = driver();
    for (int i = 0; d && i < d->devices; ++i) {
      Listed& entry = found.emplace_back();
      int handle = 0;
      char text[128] = "GPU";
      if (d->device_get(&handle, i) == 0) {
        d->device_name(text, sizeof text, handle);
        d->device_memory(&entry.memory, handle);
      }
      entry.ordinal = i;
      entry.name = "Lathe" + std::to_string(i);
      entry.description = text;
      ggml_backend_device_i& interface = entry.device.iface;
      interface.get_name = device_name;
      interface.get_description = device_description;
      interface.get_memory = device_memory;
      interface.get_type = device_type;
      interface.get_props = device_properties;
      interface.init_backend = init_backend;
      interface.get_buffer_type = buffer_type;
      interface.supports_op = supports_op;
      interface.supports_buft = supports_buffer_type;
      entry.device.reg = registry;
      entry.device.context = &entry;
      entry.buffer_type = make_buffer_type(&entry.device, &entry.ordinal);
    }
    return found;
  }();
  return list;
}

std::size_t device_count(ggml_backend_reg_t registry) {
  return devices(registry).size();
}

ggml_backend_dev_t get_device(ggml_backend_reg_t registry, std::size_t index) {
  return index < devices(registry).size() ? &devices(registry)[index].device : nullptr;
}

// Tells the name of each kernel that an operation becomes, in order.
void kernels_of(const ggml_tensor* op, void (*tell)(void* user, const char* name), void* user) {
  if (refusal(op)) return;
  for (const Step& step : lower(op).list)
    tell(user, (step.key.empty() ? name_of(step.own) : step.key).c_str());
}

// What can be asked where there is no GPU too: docs/ggml-backend.md.
void* proc_address(ggml_backend_reg_t, const char* name) {
  const std::string_view asked = name;
  if (asked == "lathe_refusal") return reinterpret_cast<void*>(&refusal);
  if (asked == "lathe_kernels") return reinterpret_cast<void*>(&kernels_of);
  return nullptr;
}

ggml_backend_reg_t registry() {
  static ggml_backend_reg entry = {
      GGML_BACKEND_API_VERSION, {registry_name, device_count, get_device, proc_address}, nullptr};
  return &entry;
}

// 0, and ggml passes the back end over, where there is no GPU.
int score() {
  if (driver()) return 1;
  GGML_LOG_INFO("lathe: no NVIDIA driver, or no GPU that this process may use\n");
  return 0;
}

}  // namespace
}  // namespace lathe_ggml

GGML_BACKEND_DL_IMPL(lathe_ggml::registry)
GGML_BACKEND_DL_SCORE_IMPL(lathe_ggml::score)
