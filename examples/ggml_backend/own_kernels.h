// Owns the way from tensors to a kernel of the back end's own: its constants and its source.
#pragma once

#include <initializer_list>
#include <string>

#include "steps.h"

namespace lathe_ggml {

// How a kernel sees a tensor.
struct Shape {
  int type = 0;
  std::int64_t ne[4] = {1, 1, 1, 1};
  std::int64_t nb[4] = {0, 0, 0, 0};
};
Shape shape_of(const ggml_tensor* tensor);
// What kernels can see at all, and what they compute with: f32, f16 or bf16.
bool type_is_known(ggml_type type);
bool holds_numbers(const ggml_tensor* tensor);

struct Constants {
  Shape d = {}, a = {}, b = {}, c = {}, m = {};
  std::initializer_list<int> numbers = {};
  std::initializer_list<float> reals = {};
};
std::string text_of(const Constants& constants);

// The whole source of a kernel.
std::string source_of(const OwnKernel& kernel);
// Its name: the entry and a number made of everything else.
std::string name_of(const OwnKernel& kernel);

// A step with one thread for each of `count` elements, or one block of `threads` for each row.
Step per_element(const char* entry, std::int64_t count, const Constants& constants,
                 std::vector<Argument> arguments);
Step per_row(const char* entry, std::int64_t rows, std::int64_t row_length,
             const Constants& constants, std::vector<Argument> arguments);

}  // namespace lathe_ggml
