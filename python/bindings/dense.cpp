// Owns dense products, the cache of their weights and the keys of those. The comments of
// lathe/c/dense.h hold. Arrays come as addresses: lathe/dense.py has looked at them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

enum class Precision : std::int32_t {};  // its numbers are the C header's

struct DenseKey {
  lathe_dense_key key;
  std::string format;
};

std::span<const std::byte> bytes_at(std::uintptr_t address, std::size_t count) {
  return {reinterpret_cast<const std::byte*>(address), count};
}
// What is not above 0 is the library's to refuse.
std::size_t floats(std::int64_t rows, std::int64_t values) {
  return rows > 0 && values > 0 ? std::size_t(rows) * std::size_t(values) : 0;
}
std::span<const float> floats_at(std::uintptr_t address, std::int64_t rows, std::int64_t values) {
  return {reinterpret_cast<const float*>(address), floats(rows, values)};
}
std::span<float> places_at(std::uintptr_t address, std::int64_t rows, std::int64_t values) {
  return {reinterpret_cast<float*>(address), floats(rows, values)};
}

// Any number of threads at once; who closes them while another multiplies does not wait for it.
class DenseProducts {
 public:
  DenseProducts(nb::object device, api::DenseProducts handle)
      : open_(std::make_shared<Open>(std::move(device), std::move(handle))) {}

  // The value of a call without the interpreter's lock, or its error raised.
  template <typename Call>
  auto run(const Call& call) const {
    const std::shared_ptr<Open> open = open_;
    if (!open) throw std::runtime_error("These dense products are closed.");
    return unlocked([&] { return call(open->handle); });
  }
  void close() { open_.reset(); }
  bool closed() const { return !open_; }

 private:
  struct Open {
    Open(nb::object of, api::DenseProducts opened)
        : device(std::move(of)), handle(std::move(opened)) {}
    nb::object device;  // whose hooks are called until the handle is closed
    api::DenseProducts handle;
  };
  std::shared_ptr<Open> open_;
};

void open_products(DenseProducts* self, nb::object device, Precision precision,
                   std::int64_t budget_bytes, const nb::object& cache) {
  auto options = api::sized<lathe_dense_options>();
  options.precision = number(precision);
  options.budget_bytes = budget_bytes;
  if (!cache.is_none()) options.cache = nb::cast<const api::DenseCache&>(cache).get();
  const auto& of = nb::cast<const Device&>(device);
  auto opened = unlocked([&] { return api::DenseProducts::open(of, options); });
  new (self) DenseProducts(std::move(device), value_of(std::move(opened)));
}

int preload(const DenseProducts& self, const std::vector<const DenseKey*>& keys,
            const std::vector<std::uintptr_t>& raw) {
  std::vector<api::DenseSource> sources;
  for (std::size_t i = 0; i < keys.size(); ++i)
    sources.push_back({keys[i]->key, bytes_at(raw.at(i), std::size_t(keys[i]->key.bytes))});
  return value_of(self.run([&](api::DenseProducts& open) { return open.preload(sources); }));
}

void bind_keys(nb::module_& module) {
  nb::enum_<Precision>(module, "Precision", nb::is_arithmetic(), "Of dense products.")
      .value("FAITHFUL", Precision(LATHE_PRECISION_FAITHFUL), "22 bits: 1e-6 of the result.")
      .value("HALF", Precision(LATHE_PRECISION_HALF), "f16: 1e-3.")
      .value("BRAIN", Precision(LATHE_PRECISION_BRAIN), "bf16: 4e-3.")
      .value("EIGHT", Precision(LATHE_PRECISION_EIGHT), "FP8: 0.13; from sm_89 on.");
  nb::class_<DenseKey>(module, "DenseKey", "What a dense weight is found by.")
      .def(
          "__init__",
          [](DenseKey* self, std::uintptr_t raw, std::size_t bytes, const std::string& format,
             std::int32_t n_in, std::int32_t n_out) {
            const auto key =
                unlocked([&] { return api::dense_key(bytes_at(raw, bytes), format, n_in, n_out); });
            new (self) DenseKey{value_of(key), format};
          },
          "raw"_a, "bytes"_a, "format"_a, "n_in"_a, "n_out"_a)
      .def_prop_ro("digest", [](const DenseKey& key) { return key.key.digest; })
      .def_prop_ro("bytes", [](const DenseKey& key) { return key.key.bytes; })
      .def_ro("format", &DenseKey::format)
      .def_prop_ro(
          "n_in", [](const DenseKey& key) { return key.key.n_in; }, "Values of a row.")
      .def_prop_ro(
          "n_out", [](const DenseKey& key) { return key.key.n_out; }, "Rows.");
  module.def(
      "weight_fingerprint",
      [](std::uintptr_t raw, std::size_t bytes, std::uint64_t n_in, std::uint64_t n_out) {
        return value_of(
            unlocked([&] { return api::weight_fingerprint(bytes_at(raw, bytes), n_in, n_out); }));
      },
      "raw"_a, "bytes"_a, "n_in"_a, "n_out"_a);
}

void bind_cache(nb::module_& module) {
  nb::class_<api::DenseCache>(module, "DenseCache", "Dense weights in host memory.")
      .def("__init__",
           [](api::DenseCache* self) {
             new (self) api::DenseCache(value_of(api::DenseCache::open()));
           })
      .def(
          "put",
          [](api::DenseCache& self, const DenseKey& key, std::uintptr_t values,
             std::int64_t count) {
            expect(unlocked([&] { return self.put(key.key, floats_at(values, 1, count)); }));
          },
          "key"_a, "values"_a, "count"_a)
      .def(
          "expand",
          [](api::DenseCache& self, const DenseKey& key, std::uintptr_t raw, std::size_t bytes) {
            expect(unlocked([&] { return self.expand(key.key, bytes_at(raw, bytes)); }));
          },
          "key"_a, "raw"_a, "bytes"_a)
      .def(
          "read",
          [](api::DenseCache& self, const DenseKey& key, std::uintptr_t values,
             std::int64_t count) {
            expect(unlocked([&] { return self.read(key.key, places_at(values, 1, count)); }));
          },
          "key"_a, "values"_a, "count"_a)
      .def(
          "contains",
          [](const api::DenseCache& self, const DenseKey& key) {
            return value_of(self.contains(key.key));
          },
          "key"_a)
      .def("size", [](const api::DenseCache& self) { return value_of(self.size()); })
      .def("clear", [](api::DenseCache& self) { expect(self.clear()); });
}

void bind_counts(nb::module_& module) {
  using Info = lathe_dense_info;
  nb::class_<Info>(module, "DenseCounts", "What dense products have resident, and have done.")
      .def_ro("weights", &Info::weights, "Resident.")
      .def_ro("blobs", &Info::blobs)
      .def_ro("bytes", &Info::bytes, "That both take.")
      .def_ro("budget_bytes", &Info::budget_bytes)
      .def_ro("products", &Info::products)
      .def_ro("uploads", &Info::uploads, "Of weights.")
      .def_ro("upload_bytes", &Info::upload_bytes, "As f32.")
      .def_ro("cached", &Info::cached, "Weights that host memory keeps.");
}

void bind_products(nb::module_& module) {
  nb::class_<DenseProducts>(module, "DenseProducts", "Products of many vectors with a matrix.")
      .def("__init__", &open_products, "device"_a, "precision"_a, "budget_bytes"_a,
           "cache"_a.none(),
           nb::sig("def __init__(self, device: Device, precision: Precision, budget_bytes: int, "
                   "cache: DenseCache | None) -> None"))
      .def(
          "batch_gemv",
          [](const DenseProducts& self, std::uintptr_t hidden, int batch, int n_in, int n_out,
             std::uintptr_t weight, std::uintptr_t out) {
            expect(self.run([&](api::DenseProducts& open) {
              return open.batch_gemv(floats_at(hidden, batch, n_in), batch, n_in, n_out,
                                     floats_at(weight, n_out, n_in), places_at(out, batch, n_out));
            }));
          },
          "hidden"_a, "batch"_a, "n_in"_a, "n_out"_a, "weight"_a, "out"_a)
      .def(
          "batch_gemv_cached",
          [](const DenseProducts& self, const DenseKey& key, std::uintptr_t raw,
             std::uintptr_t hidden, int batch, std::uintptr_t out) {
            const auto vectors = floats_at(hidden, batch, key.key.n_in);
            const auto places = places_at(out, batch, key.key.n_out);
            expect(self.run([&](api::DenseProducts& open) {
              if (raw == 0) return open.batch_gemv_cached_only(key.key, vectors, batch, places);
              return open.batch_gemv_cached(key.key, bytes_at(raw, std::size_t(key.key.bytes)),
                                            vectors, batch, places);
            }));
          },
          "key"_a, "raw"_a, "hidden"_a, "batch"_a, "out"_a, "raw 0: the cached weight alone.")
      .def("preload", &preload, "keys"_a, "raw"_a)
      .def(
          "preload_blob",
          [](const DenseProducts& self, std::uint64_t number, std::uintptr_t bytes,
             std::size_t size) {
            return value_of(self.run([&](api::DenseProducts& open) {
              return open.preload_blob(number, bytes_at(bytes, size));
            }));
          },
          "number"_a, "bytes"_a, "size"_a)
      .def(
          "blob_address",
          [](const DenseProducts& self, std::uint64_t number) {
            return value_of(
                self.run([&](api::DenseProducts& open) { return open.blob_address(number); }));
          },
          "number"_a)
      .def(
          "is_resident",
          [](const DenseProducts& self, const DenseKey& key) {
            return value_of(
                self.run([&](api::DenseProducts& open) { return open.is_resident(key.key); }));
          },
          "key"_a)
      .def_prop_ro(
          "counts",
          [](const DenseProducts& self) {
            return value_of(self.run([](api::DenseProducts& open) { return open.info(); }));
          })
      .def("clear",
           [](const DenseProducts& self) {
             expect(self.run([](api::DenseProducts& open) { return open.clear(); }));
           })
      .def("close", &DenseProducts::close)
      .def_prop_ro("closed", &DenseProducts::closed);
}

}  // namespace

void bind_dense(nb::module_& module) {
  bind_keys(module);
  bind_cache(module);
  bind_counts(module);
  bind_products(module);
}

}  // namespace lathe::python
