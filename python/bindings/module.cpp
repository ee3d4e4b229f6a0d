// Owns the module's entry: a part each for errors, arrays, kernels, dense products, models,
// sessions and batches.
#include "binding.h"

NB_MODULE(_lathe, module) {
  module.doc() = "The C interface of Lathe. The package lathe wraps it.";
  lathe::python::bind_errors(module);
  lathe::python::bind_arrays(module);
  lathe::python::bind_kernels(module);
  lathe::python::bind_dense(module);
  lathe::python::bind_models(module);
  lathe::python::bind_sessions(module);
  lathe::python::bind_batches(module);
}
