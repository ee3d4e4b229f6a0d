// Holds the loading of the driver to clear words where there is none, and the borrowing of
// contexts.
#include <gtest/gtest.h>

#include "runtime/context.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {
namespace {

TEST(DriverLoading, AMissingLibraryIsNoDriver) {
  const auto driver = load_driver("libthere_is_no_such_library.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::no_driver);
  EXPECT_NE(driver.error().message.find("libthere_is_no_such_library"), std::string::npos);
  EXPECT_NE(driver.error().text().find("hint"), std::string::npos);
}

TEST(DriverLoading, ALibraryThatIsNoDriverIsNoDriver) {
  const auto driver = load_driver("libdl.so.2");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::no_driver);
}

#ifdef LATHE_TEST_DRIVER_STUB
TEST(DriverLoading, TheToolkitsStubIsNoDriver) {
  const auto driver = load_driver(LATHE_TEST_DRIVER_STUB);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::no_driver);
  EXPECT_NE(driver.error().message.find("stub"), std::string::npos) << driver.error().text();
}
#endif

TEST(DriverLoading, TheOutcomeIsKept) {
  const auto first = system_driver();
  const auto second = system_driver();
  ASSERT_EQ(bool(first), bool(second));
  if (first) {
    EXPECT_EQ(first.value(), second.value());
  } else {
    EXPECT_EQ(first.error().code, Code::no_driver);
    EXPECT_EQ(first.error().text(), second.error().text());
  }
}

TEST(DriverTable, EveryFunctionOfTheFakeIsThere) {
  const FakeDriver fake;
#define EXPECT_FUNCTION(name) EXPECT_NE(fake.table().name, nullptr) << #name;
  LATHE_DRIVER_FUNCTIONS(EXPECT_FUNCTION)
#undef EXPECT_FUNCTION
}

TEST(DriverErrors, NameTheCallAndTheStatus) {
  const FakeDriver fake;
  const Error error = driver_error(fake.table(), CUDA_ERROR_LAUNCH_FAILED, "cuLaunchKernel");
  EXPECT_EQ(error.code, Code::driver);
  EXPECT_NE(error.text().find("call: cuLaunchKernel"), std::string::npos);
  EXPECT_NE(error.text().find("(719)"), std::string::npos) << error.text();
  EXPECT_EQ(driver_error(fake.table(), CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc").code,
            Code::out_of_memory);
  EXPECT_EQ(driver_version_text(12080), "12.8");
}

TEST(Contexts, ThePrimaryIsRetainedAndReleased) {
  FakeDriver fake;
  {
    const auto context = Context::open(fake.table(), nullptr, 0);
    ASSERT_TRUE(context);
    EXPECT_EQ(context->target().name(), "sm_90a");
    EXPECT_EQ(context->device_name(), "Fake GPU");
    EXPECT_EQ(fake.current_context(), nullptr);
    {
      const auto scope = context->enter();
      ASSERT_TRUE(scope);
      EXPECT_NE(fake.current_context(), nullptr);
    }
    EXPECT_EQ(fake.current_context(), nullptr);
    EXPECT_EQ(fake.leaks(), "1 retained contexts, ");
  }
  EXPECT_EQ(fake.leaks(), "");
}

TEST(Contexts, ABorrowedOneIsLeftAlone) {
  FakeDriver fake;
  const CUcontext mine = fake.make_context();
  {
    const auto context = Context::open(fake.table(), mine, 7);
    ASSERT_TRUE(context);
    const auto scope = context->enter();
    EXPECT_EQ(fake.current_context(), mine);
  }
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0);
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRelease"), 0);
}

TEST(Contexts, ADeviceThatIsNotThereIsRefused) {
  FakeDriver fake;
  for (int ordinal : {-1, 1}) {
    const auto context = Context::open(fake.table(), nullptr, ordinal);
    ASSERT_FALSE(context);
    EXPECT_EQ(context.error().code, Code::invalid_argument);
  }
}

TEST(Contexts, AChipThatIsTooOldIsRefusedByName) {
  FakeDriver fake({.compute = 61});
  const auto context = Context::open(fake.table(), nullptr, 0);
  ASSERT_FALSE(context);
  EXPECT_NE(context.error().text().find("Fake GPU"), std::string::npos);
  EXPECT_EQ(fake.leaks(), "");
}

}  // namespace
}  // namespace lathe::testing
