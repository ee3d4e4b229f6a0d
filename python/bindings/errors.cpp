// Owns the exception: a status, one sentence, and named details.
#include <nanobind/stl/string.h>

#include "binding.h"

namespace lathe::python {
namespace {

nb::dict details_of_last_error(std::int32_t count) {
  nb::dict details;
  for (std::int32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    const char* value = nullptr;
    if (lathe_last_error_detail(i, &name, &value) == LATHE_OK) details[name] = nb::str(value);
  }
  return details;
}

}  // namespace

void raise_last_error() {
  auto error = api::sized<lathe_error>();
  lathe_last_error(&error);
  const nb::module_ errors = nb::module_::import_("lathe.errors");
  const nb::object raised =
      errors.attr("Error")(error.message, errors.attr("Status")(error.status), error.driver_status,
                           details_of_last_error(error.detail_count));
  PyErr_SetObject(raised.type().ptr(), raised.ptr());
  throw nb::python_error();
}

void tell_progress(void* callback, const char* what, std::int64_t done, std::int64_t total) {
  const nb::gil_scoped_acquire acquired;
  static_cast<Callback*>(callback)->call(what, done, total);
}

void bind_errors(nb::module_& module) {
  module.def(
      "status_text", [](int status) { return std::string(lathe_status_text(status)); },
      nb::arg("status"), "What a status means, in words.");
  module.def(
      "version", [] { return std::string(lathe_version_text()); }, "The version of liblathe.");
}

}  // namespace lathe::python
