// Holds the C interface to asking for the weights that a caller has on the device.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/c_api/fixture.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

TEST(WeightsOnTheDevice, AreAskedForByNameAndLayout) {
  const GgufImage image = tiny_model(model_shape(1));
  const Model model = model_of(image);
  auto options = api::sized<lathe_session_options>();
  options.executor = LATHE_EXECUTOR_CPU;
  options.context = 16;
  lathe_session* session = nullptr;

  FakeDriver fake;
  {
    DeviceOptions on_fake;
    on_fake.disk_cache = false;
    const DeviceHandle device(
        c_api::open_device_handle(DeviceImpl::open(on_fake, fake.platform()).value()).value());
    struct Asked {
      std::vector<std::string> tensors;
      int tiles = 0;
      std::uint64_t answer = 0;
    } asked;
    options.weights_user = &asked;
    options.weights = [](void* user, const char* tensor, std::int32_t element, std::int64_t bytes) {
      auto& of = *static_cast<Asked*>(user);
      EXPECT_TRUE(element == LATHE_ELEMENT_TILES || element == LATHE_ELEMENT_BLOCKS);
      EXPECT_GT(bytes, 0);
      of.tensors.emplace_back(tensor);
      of.tiles += element == LATHE_ELEMENT_TILES;
      return of.answer;
    };
    EXPECT_REFUSED(lathe_session_open(model.get(), &options, &session), LATHE_INVALID_ARGUMENT,
                   "cpu executor");
    EXPECT_TRUE(asked.tensors.empty());
    options.executor = LATHE_EXECUTOR_GRAPH;
    options.device = device.get();
    ASSERT_EQ(lathe_session_open(model.get(), &options, &session), LATHE_OK) << last_message();
    const SessionHandle handle(session);
    EXPECT_GT(asked.tiles, 0);
    EXPECT_GT(asked.tensors.size(), std::size_t(asked.tiles));
    EXPECT_EQ(std::ranges::count(asked.tensors, "output_norm.weight"), 1);
    auto info = api::sized<lathe_session_info>();
    ASSERT_EQ(lathe_session_get_info(session, &info), LATHE_OK);
    EXPECT_EQ(info.borrowed_bytes, 0);
    asked.answer = 4097;
    EXPECT_REFUSED(lathe_session_open(model.get(), &options, &session), LATHE_INVALID_ARGUMENT,
                   "0x1001");
  }
  EXPECT_EQ(fake.leaks(), "");
}

}  // namespace
}  // namespace lathe::testing
