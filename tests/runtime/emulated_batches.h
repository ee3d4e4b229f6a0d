// Owns what tests of emulated batches share: a driver of their own, which must find nothing wrong.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lathe/runtime/batch.h"
#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {

// `Base` is a fixture of GoogleTest.
template <class Base>
class EmulatedBatches : public Base {
 protected:
  std::unique_ptr<Batch> open_batch_of(int layers, const BatchOptions& options) {
    auto batch = open_batch(make_model(layers), options, fake_.platform());
    EXPECT_TRUE(batch) << batch.error().text();
    return batch ? std::move(*batch) : nullptr;
  }
  void TearDown() override {
    for (const std::string& violation : fake_.violations()) ADD_FAILURE() << violation;
  }

  const std::uint64_t seed_ = verification::fresh_seed();
  FakeDriver fake_{emulated(3, seed_)};
};

}  // namespace lathe::testing
