// Owns the constants and the sources of the back end's own kernels.
#include "own_kernels.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "kernel_sources.h"  // made of kernels/ by CMake

namespace lathe_ggml {
namespace {

struct Entry {
  const char* name;
  const char* source;
  bool activations;
};
const Entry kEntries[] = {
    {"map", sources::map, true},
    {"copy_elements", sources::copy, false},
    {"binary", sources::binary, false},
    {"glu", sources::glu, true},
    {"norm_rows", sources::norm, false},
    {"rope", sources::rope, false},
    {"soft_max", sources::soft_max, false},
    {"get_rows", sources::rows, false},
    {"set_rows", sources::rows, false},
    {"argmax", sources::reduce, false},
    {"sum_rows", sources::reduce, false},
    {"dot", sources::product, false},
    {"product", sources::product, false},
    {"rounded_product", sources::rounded_product, false},
    {"attention", sources::attention, false},
};

// The numbers of the enum Type in kernels/tensor.cu.
int number_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return 0;
    case GGML_TYPE_F16:
      return 1;
    case GGML_TYPE_BF16:
      return 2;
    case GGML_TYPE_I32:
      return 3;
    case GGML_TYPE_I16:
      return 4;
    case GGML_TYPE_I64:
      return 5;
    default:
      return -1;
  }
}

template <class... Values>
void append(std::string& text, const char* format, Values... values) {
  char line[320];
  const int length = std::snprintf(line, sizeof line, format, values...);
  text.append(line, static_cast<std::size_t>(length));
}

void append(std::string& text, const char* name, const Shape& s) {
  append(text,
         "[[maybe_unused]] __constant__ constexpr Tensor %s = {%d, {%" PRId64 ", %" PRId64
         ", %" PRId64 ", %" PRId64 "}, {%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "}};\n",
         name, s.type, s.ne[0], s.ne[1], s.ne[2], s.ne[3], s.nb[0], s.nb[1], s.nb[2], s.nb[3]);
}

// Exactly this value. What %a makes of an infinity or of what is not a number is no C++.
void append(std::string& text, float real) {
  if (std::isfinite(real))
    append(text, "%af", static_cast<double>(real));
  else
    append(text, "__builtin_bit_cast(float, 0x%08" PRIx32 "u)", std::bit_cast<std::uint32_t>(real));
}

}  // namespace

bool type_is_known(ggml_type type) {
  return number_of(type) >= 0;
}

bool holds_numbers(const ggml_tensor* tensor) {
  return tensor->type == GGML_TYPE_F32 || tensor->type == GGML_TYPE_F16 ||
         tensor->type == GGML_TYPE_BF16;
}

Shape shape_of(const ggml_tensor* tensor) {
  Shape shape;
  if (!tensor) return shape;
  shape.type = number_of(tensor->type);
  for (int i = 0; i < 4; ++i) {
    shape.ne[i] = tensor->ne[i];
    shape.nb[i] = static_cast<std::int64_t>(tensor->nb[i]);
  }
  return shape;
}

std::string text_of(const Constants& constants) {
  std::string text;
  append(text, "D", constants.d);
  append(text, "A", constants.a);
  append(text, "B", constants.b);
  append(text, "C", constants.c);
  append(text, "M", constants.m);
  append(text, "[[maybe_unused]] __constant__ constexpr int N[8] = {");
  for (const int number : constants.numbers) append(text, "%d, ", number);
  append(text, "};\n[[maybe_unused]] __constant__ constexpr float R[8] = {");
  for (const float real : constants.reals) {
    append(text, real);
    text += ", ";
  }
  append(text, "};\n");
  return text;
}

std::string source_of(const OwnKernel& kernel) {
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, kernel.entry) != 0) continue;
    std::string text = std::string(sources::tensor) + kernel.constants;
    if (entry.activations) text.append(sources::functions).append(sources::activation);
    return text + entry.source;
  }
  return {};
}

std::string name_of(const OwnKernel& kernel) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](const char* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 1099511628211u;
  };
  add(kernel.constants.data(), kernel.constants.size());
  const std::uint32_t launch[] = {kernel.grid_x, kernel.grid_y, kernel.threads};
  add(reinterpret_cast<const char*>(launch), sizeof launch);
  std::string name = "ggml.";
  append(name, "%s.%016" PRIx64, kernel.entry, hash);
  return name;
}

Step per_element(const char* entry, std::int64_t count, const Constants& constants,
                 std::vector<Argument> arguments) {
  constexpr int kThreads = 256;
  const auto blocks = static_cast<std::uint32_t>((count + kThreads - 1) / kThreads);
  return of_own({entry, text_of(constants), blocks, 1, kThreads}, std::move(arguments));
}

Step per_row(const char* entry, std::int64_t rows, std::int64_t row_length,
             const Constants& constants, std::vector<Argument> arguments) {
  const std::int64_t warps = std::clamp<std::int64_t>((row_length + 127) / 128, 1, 32);
  return of_own({entry, text_of(constants), static_cast<std::uint32_t>(rows), 1,
                 static_cast<std::uint32_t>(32 * warps)},
                std::move(arguments));
}

}  // namespace lathe_ggml
