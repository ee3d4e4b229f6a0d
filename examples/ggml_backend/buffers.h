// Owns the back end's buffers: device memory as ggml hands it out.
#pragma once

#include "ggml-backend-impl.h"

namespace lathe_ggml {

// The buffer type of a device; the device outlives it.
ggml_backend_buffer_type make_buffer_type(ggml_backend_dev_t device, int* ordinal);

}  // namespace lathe_ggml
