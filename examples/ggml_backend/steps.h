// Owns the launches that one ggml operation becomes, before any device is known: a step names a
// kernel and where its arguments are.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ggml.h"

namespace lathe_ggml {

// What an argument is an address in.
enum class Place : std::uint8_t { result, operand, scratch };

struct Argument {
  Place place = Place::result;
  int operand = 0;  // of Place::operand: which src
  std::int64_t offset = 0;
};

// A kernel of the back end's own: an entry of kernels/, and the constants it is compiled with.
struct OwnKernel {
  const char* entry = nullptr;
  std::string constants;
  std::uint32_t grid_x = 1, grid_y = 1, threads = 256;
};

struct Step {
  std::string key;  // of a kernel of Lathe's table; empty: `own`
  OwnKernel own;
  std::vector<Argument> arguments;
};

struct Steps {
  std::vector<Step> list;
  std::int64_t scratch_bytes = 0;
};
inline Step of_table(std::string key, std::vector<Argument> arguments) {
  Step step;
  step.key = std::move(key);
  step.arguments = std::move(arguments);
  return step;
}
inline Step of_own(OwnKernel own, std::vector<Argument> arguments) {
  Step step;
  step.own = std::move(own);
  step.arguments = std::move(arguments);
  return step;
}
inline Steps one(Step step) {
  Steps steps;
  steps.list.push_back(std::move(step));
  return steps;
}

inline Argument result(std::int64_t offset = 0) {
  return {Place::result, 0, offset};
}
inline Argument operand(int index, std::int64_t offset = 0) {
  return {Place::operand, index, offset};
}

}  // namespace lathe_ggml
