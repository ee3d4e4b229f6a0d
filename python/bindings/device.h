// Owns a device in Python: the handle, and the functions of the program's that it calls back.
#pragma once

#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "binding.h"

namespace lathe::python {

enum class Route : std::int32_t {};  // its numbers are the C header's
enum class Language : std::int32_t {};

constexpr auto number = [](auto enumerator) { return static_cast<std::int32_t>(enumerator); };

inline const char* or_null(const std::optional<std::string>& text) {
  return text ? text->c_str() : nullptr;
}

// Strings of an info live as long as its handle, so each is read when it is asked for.
template <auto member, typename Class>
auto info_member() {
  return [](const Class& object) { return value_of(object.info()).*member; };
}

// None where there is none.
struct DeviceHooks {
  nb::object log;
  nb::object allocate;
  nb::object free;
};

struct KeptHooks {
  std::unique_ptr<DeviceHooks> hooks;
};

// The handle, a later base, closes before the hooks go. Kernels, sessions and batches keep this
// object, for they call its hooks too.
struct Device : KeptHooks, api::Device {
  Device(std::unique_ptr<DeviceHooks> kept, api::Device opened)
      : KeptHooks{std::move(kept)}, api::Device(std::move(opened)) {}
};

void bind_devices(nb::module_& module);

}  // namespace lathe::python
