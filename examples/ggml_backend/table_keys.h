// Owns the way from ggml's types and tensors to keys of kernels of Lathe's table.
#pragma once

#include <cstdint>
#include <string>

#include "ggml.h"

namespace lathe_ggml {

// Lathe's name of a type of weights, or null.
const char* format_of(ggml_type type);

// gemv: y[rows] = W[rows][length] x. The tuning is Lathe's own for an H200.
std::string gemv_key(ggml_type type, std::int64_t length, std::int64_t rows);
// embed: so many rows of a table, by number.
std::string embed_key(ggml_type type, std::int64_t length, std::int64_t rows, std::int64_t count);

// dequantize: all rows of a matrix.
std::string dequantize_key(ggml_type type, std::int64_t length, std::int64_t rows);

// rms_norm: rows of numbers, normed and multiplied by a weight.
std::string rms_norm_key(std::int64_t length, std::int64_t rows, float epsilon);

// Each row follows the one before.
bool rows_are_whole(const ggml_tensor* matrix);
// Each matrix of a tensor of several starts at a multiple of 16 bytes.
bool matrices_are_aligned(const ggml_tensor* tensor);

// A MUL_MAT that is a launch of gemv for each column.
bool takes_gemv(const ggml_tensor* op);

std::int64_t bytes_to(const ggml_tensor* tensor, std::int64_t i1, std::int64_t i2, std::int64_t i3);

}  // namespace lathe_ggml
