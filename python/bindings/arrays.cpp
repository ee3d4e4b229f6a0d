// Owns the reading of a DLPack capsule: where an array lies and how.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

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

// What a capsule "dltensor_versioned" holds, as DLPack 1 has it. A capsule "dltensor" begins with
// the tensor, and cannot say that it may not be written to.
struct VersionedTensor {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};
constexpr const char* kVersioned = "dltensor_versioned";
constexpr std::uint32_t kKnownMajor = 1;
constexpr std::uint64_t kReadOnly = 1, kCopied = 2;

// The capsule stays its owner's, who frees what it holds: it is looked at, and not taken.
nb::tuple read_capsule(const nb::object& capsule) {
  std::uint64_t flags = 0;
  const nb::dlpack::dltensor* of = nullptr;
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned)) {
    const auto* held =
        static_cast<const VersionedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    if (held->major != kKnownMajor)
      throw nb::value_error(("The DLPack capsule is of version " + std::to_string(held->major) +
                             "." + std::to_string(held->minor) + ", and 1 is known.")
                                .c_str());
    flags = held->flags;
    of = &held->tensor;
  } else {
    of = static_cast<const nb::dlpack::dltensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (!of) throw nb::python_error();
  }
  nb::list shape, strides;
  for (int i = 0; i < of->ndim; ++i) shape.append(of->shape[i]);
  // Without strides it is contiguous.
  for (int i = 0; of->strides && i < of->ndim; ++i) strides.append(of->strides[i]);
  const auto address = reinterpret_cast<std::uintptr_t>(of->data) + of->byte_offset;
  return nb::make_tuple(address, nb::tuple(shape),
                        of->strides ? nb::object(nb::tuple(strides)) : nb::none(),
                        type_code(of->dtype), (flags & kReadOnly) != 0, (flags & kCopied) != 0);
}

}  // namespace

void bind_arrays(nb::module_& module) {
  module.def("read_capsule", &read_capsule, nb::arg("capsule"),
             nb::sig("def read_capsule(capsule: object) -> "
                     "tuple[int, tuple[int, ...], tuple[int, ...] | None, str, bool, bool]"),
             "Of a DLPack capsule's array: address, shape, strides in elements, type code, whether "
             "it is read-only, and whether it is a copy that goes with the capsule.");
}

}  // namespace lathe::python
