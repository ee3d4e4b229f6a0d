// Owns the declarations of what the table of operations refers to.
#pragma once

#include "steps.h"

namespace lathe_ggml {

struct Operation {
  ggml_op op;
  const char* (*refuse)(const ggml_tensor*);
  Steps (*lower)(const ggml_tensor*);
};

const char* refuse_map(const ggml_tensor* op);
Steps lower_map(const ggml_tensor* op);
const char* refuse_glu(const ggml_tensor* op);
Steps lower_glu(const ggml_tensor* op);
const char* refuse_soft_max(const ggml_tensor* op);
Steps lower_soft_max(const ggml_tensor* op);
const char* refuse_attention(const ggml_tensor* op);
Steps lower_attention(const ggml_tensor* op);
const char* refuse_get_rows(const ggml_tensor* op);
Steps lower_get_rows(const ggml_tensor* op);
const char* refuse_set_rows(const ggml_tensor* op);
Steps lower_set_rows(const ggml_tensor* op);
const char* refuse_matrix_product(const ggml_tensor* op);
Steps lower_matrix_product(const ggml_tensor* op);

}  // namespace lathe_ggml
