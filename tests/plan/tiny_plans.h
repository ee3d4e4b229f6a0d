// Owns plans of tiny models.
#pragma once

#include <gtest/gtest.h>

#include "lathe/plan/plan.h"
#include "tests/plan/tiny_models.h"

namespace lathe::testing {

inline Result<Plan> build(const GgufWriter& writer, const PlanOptions& options = {}) {
  const auto image = writer.image();
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  EXPECT_TRUE(file) << (file ? "" : file.error().text());
  return build_plan(**file, options);
}

// Where there must be one.
inline Plan plan_of(const TinyModel& model, const PlanOptions& options = {}) {
  auto plan = build(tiny_model_writer(model), options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
  return plan ? std::move(plan).value() : Plan{};
}

}  // namespace lathe::testing
