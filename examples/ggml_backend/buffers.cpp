// Owns allocation of device memory and copies from and to it. All of them wait for their end, and
// stand on the device's one stream, behind the graphs that were launched before.
#include "buffers.h"

#include <algorithm>

#include "device.h"

namespace lathe_ggml {
namespace {

struct Memory {
  Device* device;
  std::uint64_t address;
};

Memory& memory_of(ggml_backend_buffer_t buffer) {
  return *static_cast<Memory*>(buffer->context);
}
std::uint64_t address_in(const ggml_tensor* tensor, std::size_t offset) {
  return reinterpret_cast<std::uint64_t>(tensor->data) + offset;
}

// Runs call(driver, stream) in the buffer's context and waits for it.
template <class Call>
bool run(ggml_backend_buffer_t buffer, const char* what, Call call) {
  Device& device = *memory_of(buffer).device;
  const std::lock_guard lock(device.mutex());
  const ContextScope scope(device.context());
  return driver_did(call(*driver(), device.stream()), what) &&
         driver_did(driver()->wait(device.stream()), what);
}

void free_buffer(ggml_backend_buffer_t buffer) {
  const Memory memory = memory_of(buffer);
  const std::lock_guard lock(memory.device->mutex());
  const ContextScope scope(memory.device->context());
  driver_did(driver()->free(memory.address), "freeing a buffer");
  delete static_cast<Memory*>(buffer->context);
}

void* get_base(ggml_backend_buffer_t buffer) {
  return reinterpret_cast<void*>(memory_of(buffer).address);
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, std::uint8_t value,
                   std::size_t offset, std::size_t size) {
  run(buffer, "filling a tensor", [&](const Driver& d, CUstream_st* stream) {
    return d.fill(address_in(tensor, offset), value, size, stream);
  });
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data,
                std::size_t offset, std::size_t size) {
  run(buffer, "writing a tensor", [&](const Driver& d, CUstream_st* stream) {
    return d.to_device(address_in(tensor, offset), data, size, stream);
  });
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data,
                std::size_t offset, std::size_t size) {
  run(buffer, "reading a tensor", [&](const Driver& d, CUstream_st* stream) {
    return d.to_host(data, address_in(tensor, offset), size, stream);
  });
}

bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* from, ggml_tensor* to) {
  ggml_backend_buffer_t other = from->view_src ? from->view_src->buffer : from->buffer;
  if (other->iface.free_buffer != free_buffer ||
      memory_of(other).device != memory_of(buffer).device)
    return false;
  return run(buffer, "copying a tensor", [&](const Driver& d, CUstream_st* stream) {
    return d.within(address_in(to, 0), address_in(from, 0), ggml_nbytes(from), stream);
  });
}

void clear(ggml_backend_buffer_t buffer, std::uint8_t value) {
  run(buffer, "clearing a buffer", [&](const Driver& d, CUstream_st* stream) {
    return d.fill(memory_of(buffer).address, value, buffer->size, stream);
  });
}

const char* type_name(ggml_backend_buffer_type_t) {
  return "Lathe";
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, std::size_t size) {
  Device* device = Device::open(*static_cast<int*>(type->context));
  if (!device) return nullptr;
  const std::lock_guard lock(device->mutex());
  const ContextScope scope(device->context());
  std::uint64_t address = 0;
  if (!driver_did(driver()->allocate(&address, std::max<std::size_t>(size, 1)),
                  "allocating a buffer"))
    return nullptr;
  ggml_backend_buffer_i interface = {};
  interface.free_buffer = free_buffer;
  interface.get_base = get_base;
  interface.memset_tensor = memset_tensor;
  interface.set_tensor = set_tensor;
  interface.get_tensor = get_tensor;
  interface.cpy_tensor = cpy_tensor;
  interface.clear = clear;
  return ggml_backend_buffer_init(type, interface, new Memory{device, address}, size);
}

std::size_t alignment(ggml_backend_buffer_type_t) {
  return 256;
}

}  // namespace

ggml_backend_buffer_type make_buffer_type(ggml_backend_dev_t device, int* ordinal) {
  ggml_backend_buffer_type type = {};
  type.iface.get_name = type_name;
  type.iface.alloc_buffer = allocate;
  type.iface.get_alignment = alignment;
  type.device = device;
  type.context = ordinal;
  return type;
}

}  // namespace lathe_ggml
