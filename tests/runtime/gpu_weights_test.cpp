// Holds a session on weights that the caller has on a real GPU to one that uploads them. Skipped
// with the reason where there is none.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/context.h"
#include "runtime/session_base.h"
#include "tests/runtime/engine_weights.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

constexpr std::int32_t kPrompt[] = {3, 77, 5, 12, 9, 140, 0, 1, 2, 60};

std::vector<float> decode(Session& session) {
  std::vector<std::int32_t> tokens(16);
  EXPECT_TRUE(session.feed(kPrompt));
  EXPECT_TRUE(session.generate(session.sampled().value(), tokens));
  const auto logits = session.logits().value();
  return {logits.begin(), logits.end()};
}

TEST(GpuWeights, OfTheCallersAreReadInPlaceOrMadeTilesOf) {
  const auto driver = system_driver();
  if (!driver) GTEST_SKIP() << driver.error().message;
  const auto context = Context::open(**driver, nullptr, 0);
  ASSERT_TRUE(context) << context.error().text();
  const auto scope = context->enter();
  ASSERT_TRUE(scope);
  TinyModel shape = model_shape(2);
  const auto file = make_model(shape);
  shape.seed = 2;  // other weights, so that a read of those shows
  const auto other = make_model(shape);
  for (const ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::automatic}) {
    SessionOptions options;
    options.executor = kind;
    options.plan.context = 64;
    options.disk_cache = false;
    const auto plain = Session::open(file, options);
    ASSERT_TRUE(plain) << plain.error().text();
    const std::vector<float> expected = decode(**plain);
    for (const Has has : {Has::blocks, Has::tiles}) {
      std::vector<CUdeviceptr> taken;
      EngineWeights weights(file, has, [&](std::span<const std::byte> content) {
        CUdeviceptr address = 0;
        EXPECT_EQ((*driver)->cuMemAlloc(&address, content.size()), CUDA_SUCCESS);
        taken.push_back(address);
        EXPECT_EQ((*driver)->cuMemcpyHtoDAsync(address, content.data(), content.size(), nullptr),
                  CUDA_SUCCESS);
        EXPECT_EQ((*driver)->cuStreamSynchronize(nullptr), CUDA_SUCCESS);
        return std::uint64_t(address);
      });
      options.device_weights = weights.hook();
      {
        const auto session = Session::open(other, options);
        ASSERT_TRUE(session) << session.error().text();
        EXPECT_EQ(decode(**session), expected);
        EXPECT_GT((*session)->report().borrowed_bytes, 0);
        const bool all = has == Has::tiles || (*session)->plan().options.fusion == Fusion::none;
        std::int64_t bytes = 0;
        for (const WeightSlot& slot : (*session)->plan().weights) bytes += slot.bytes;
        EXPECT_EQ((*session)->report().borrowed_bytes == bytes, all);
      }
      for (const CUdeviceptr address : taken)
        EXPECT_EQ((*driver)->cuMemFree(address), CUDA_SUCCESS);
    }
  }
}

}  // namespace
}  // namespace lathe::testing
