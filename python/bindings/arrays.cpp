// Owns the reading of a DLPack capsule: where an array lies and how.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "binding.h"

namespace lathe::python {
namespace {

// "f4", "i4", "u1": as in a NumPy type string, V for kinds that NumPy has not.
std::string type_code(nb::dlpack::dtype type) {
  char kind = 'V';
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Int:
      kind = 'i';
      break;
    case nb::dlpack::dtype_code::UInt:
      kind = 'u';
      break;
    case nb::dlpack::dtype_code::Float:
      kind = 'f';
      break;
    case nb::dlpack::dtype_code::Bool:
      kind = 'b';
      break;
    default:
      break;
  }
  return kind + std::to_string(type.bits * type.lanes / 8);
}

nb::tuple read_capsule(const nb::ndarray<nb::ro>& array) {
  nb::list shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(array.data());
  return nb::make_tuple(address, nb::tuple(shape), nb::tuple(strides), type_code(array.dtype()));
}

}  // namespace

void bind_arrays(nb::module_& module) {
  module.def("read_capsule", &read_capsule, nb::arg("capsule"),
             nb::sig("def read_capsule(capsule: object) -> "
                     "tuple[int, tuple[int, ...], tuple[int, ...], str]"),
             "Address, shape, strides in elements, and type code of a DLPack capsule's array.");
}

}  // namespace lathe::python
