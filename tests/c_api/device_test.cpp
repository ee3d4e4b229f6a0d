// Holds devices, kernels and launches of the C interface to their contract, on the fake driver,
// which runs each kernel by its oracle.
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/c_api/fixture.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"

namespace lathe::testing {
namespace {

class DeviceFunctions : public ::testing::Test {
 protected:
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(fake_.leaks(), "1 streams, ");  // the caller's
    EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
  }

  DeviceHandle open(bool disk_cache = false) {
    DeviceOptions options;
    options.disk_cache = disk_cache;
    options.cache_directory = scratch_.path();
    auto device = DeviceImpl::open(options, fake_.platform());
    EXPECT_TRUE(device);
    return DeviceHandle(c_api::open_device_handle(device.value()).value());
  }
  KernelHandle load(const Key& key) {
    lathe_kernel* kernel = nullptr;
    EXPECT_EQ(lathe_kernel_load(device_.get(), key.get(), &kernel), LATHE_OK) << last_message();
    return KernelHandle(kernel);
  }

  FakeDriver fake_;
  ScratchDirectory scratch_;
  DeviceHandle device_ = open();
  CUstream stream_ = fake_.make_stream();
};

// Memory of the fake device, which is memory of the host.
template <typename T>
struct Buffer {
  explicit Buffer(std::size_t count) : values(count + 64 / sizeof(T)) {}
  T* data() {
    void* at = values.data();
    std::size_t room = values.size() * sizeof(T);
    return static_cast<T*>(std::align(64, 1, at, room));
  }
  std::uint64_t address() { return reinterpret_cast<std::uintptr_t>(data()); }
  std::vector<T> values;
};

TEST_F(DeviceFunctions, LaunchAKernelOnTheCallersStream) {
  const KernelHandle kernel = load(key_of("gemv.f32.k64.n3.w4"));
  Buffer<float> weights(3 * 64), x(64), y(3);
  std::fill_n(weights.data(), 3 * 64, 0.5f);
  std::fill_n(x.data(), 64, 2.0f);
  const Key key = key_of("gemv.f32.k64.n3.w4");
  auto info = api::sized<lathe_key_info>();
  ASSERT_EQ(lathe_key_get_info(key.get(), &info), LATHE_OK);
  std::vector<std::uint64_t> arguments;
  for (int i = 0; i < info.parameter_count; ++i) {
    auto parameter = api::sized<lathe_parameter>();
    ASSERT_EQ(lathe_key_get_parameter(key.get(), i, &parameter), LATHE_OK);
    arguments.push_back(parameter.access != LATHE_ACCESS_READ         ? y.address()
                        : parameter.bytes == std::int64_t{3} * 64 * 4 ? weights.address()
                                                                      : x.address());
  }
  ASSERT_EQ(lathe_kernel_launch(kernel.get(), arguments.data(), info.parameter_count, stream_),
            LATHE_OK)
      << last_message();
  EXPECT_EQ(fake_.calls("cuStreamSynchronize"), 0);
  EXPECT_EQ(y.data()[0], 0);  // stands on the stream
  fake_.push_context(fake_.make_context());
  fake_.table().cuStreamSynchronize(stream_);
  CUcontext popped = nullptr;
  fake_.table().cuCtxPopCurrent(&popped);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(y.data()[i], 64.0f);
}

TEST_F(DeviceFunctions, RefuseWrongArgumentsBeforeTheLaunch) {
  const KernelHandle kernel = load(key_of("gemv.f32.k64.n3.w4"));
  std::uint64_t arguments[3] = {4096, 8192, 16384};
  fake_.reset_counts();
  EXPECT_REFUSED(lathe_kernel_launch(kernel.get(), arguments, 2, stream_), LATHE_INVALID_ARGUMENT,
                 "takes 3 arguments");
  EXPECT_REFUSED(lathe_kernel_launch(kernel.get(), arguments, -1, stream_), LATHE_INVALID_ARGUMENT,
                 "arguments is -1");
  EXPECT_REFUSED(lathe_kernel_launch(kernel.get(), nullptr, 3, stream_), LATHE_INVALID_ARGUMENT,
                 "null");
  // Whichever it is, by its parameter's name.
  const char* const names[] = {"weights", "x", "y"};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string of = std::string("Argument ") + names[i] + " of gemv.f32.k64.n3.w4 is ";
    const std::uint64_t address = std::exchange(arguments[i], 0);
    EXPECT_REFUSED(lathe_kernel_launch(kernel.get(), arguments, 3, stream_), LATHE_INVALID_ARGUMENT,
                   of + "null.");
    arguments[i] = address + 1;
    EXPECT_REFUSED(lathe_kernel_launch(kernel.get(), arguments, 3, stream_), LATHE_INVALID_ARGUMENT,
                   of + "not aligned to ");
    arguments[i] = address;
  }
  EXPECT_REFUSED(lathe_kernel_launch(nullptr, arguments, 3, stream_), LATHE_INVALID_ARGUMENT,
                 "kernel is a null");
  EXPECT_EQ(fake_.calls("cuLaunchKernel"), 0);
}

TEST_F(DeviceFunctions, KernelsOutliveTheHandleOfTheirDevice) {
  const KernelHandle kernel = load(key_of("gemv.f32.k64.n3.w4"));
  device_.reset();
  auto info = api::sized<lathe_kernel_info>();
  ASSERT_EQ(lathe_kernel_get_info(kernel.get(), &info), LATHE_OK);
  EXPECT_STREQ(info.name, "gemv.f32.k64.n3.w4");
  EXPECT_EQ(info.parameter_count, 3);
  EXPECT_EQ(info.route, LATHE_ROUTE_LLVM);
  EXPECT_EQ(info.from_cache, 0);
}

TEST_F(DeviceFunctions, PrepareTellsOfProgressAndCounts) {
  const Key one = key_of("gemv.f32.k64.n3.w4"), two = key_of("gemv.f32.k64.n4.w4");
  const lathe_key* keys[] = {one.get(), two.get()};
  int told = 0;
  ASSERT_EQ(lathe_device_prepare(
                device_.get(), keys, 2,
                [](void* user, const char* what, std::int64_t, std::int64_t total) {
                  EXPECT_STREQ(what, "preparing kernels");
                  EXPECT_EQ(total, 2);
                  ++*static_cast<int*>(user);
                },
                &told),
            LATHE_OK);
  EXPECT_GE(told, 1);
  const KernelHandle kernel = load(one);
  auto info = api::sized<lathe_device_info>();
  ASSERT_EQ(lathe_device_get_info(device_.get(), &info), LATHE_OK);
  EXPECT_EQ(info.kernels_built, 2);
  EXPECT_EQ(info.kernels_from_memory, 1);
  EXPECT_STREQ(info.target, "sm_90a");
  const char* note = nullptr;
  EXPECT_REFUSED(lathe_device_get_note(device_.get(), info.note_count, &note),
                 LATHE_INVALID_ARGUMENT, "note");
  EXPECT_REFUSED(lathe_device_prepare(device_.get(), nullptr, 2, nullptr, nullptr),
                 LATHE_INVALID_ARGUMENT, "keys");
  const lathe_key* broken[] = {one.get(), nullptr};
  EXPECT_REFUSED(lathe_device_prepare(device_.get(), broken, 2, nullptr, nullptr),
                 LATHE_INVALID_ARGUMENT, "key is a null");
}

TEST_F(DeviceFunctions, AnExceptionOfACallbackGoesNoFurther) {
  const Key key = key_of("gemv.f32.k64.n3.w4");
  const lathe_key* keys[] = {key.get()};
  EXPECT_REFUSED(lathe_device_prepare(
                     device_.get(), keys, 1,
                     [](void*, const char*, std::int64_t, std::int64_t) { throw 1; }, nullptr),
                 LATHE_INTERNAL, "exception");
}

TEST_F(DeviceFunctions, AFailureOfTheDriverHasItsNumber) {
  const KernelHandle kernel = load(key_of("gemv.f32.k64.n3.w4"));
  const std::uint64_t arguments[3] = {4096, 8192, 16384};
  fake_.fail_call(1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);  // after the push of the context
  EXPECT_EQ(lathe_kernel_launch(kernel.get(), arguments, 3, stream_), LATHE_DRIVER);
  auto error = api::sized<lathe_error>();
  ASSERT_EQ(lathe_last_error(&error), LATHE_OK);
  EXPECT_EQ(error.driver_status, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_NE(std::string(error.message).find("cuLaunchKernel"), std::string::npos);
}

TEST(DeviceOpening, ChecksItsOptions) {
  lathe_device* device = nullptr;
  const std::int32_t routes[] = {LATHE_ROUTE_TEXT, 9};
  auto options = api::sized<lathe_device_options>();
  options.routes = routes;
  options.route_count = 2;
  EXPECT_REFUSED(lathe_device_open(&options, &device), LATHE_INVALID_ARGUMENT, "route number 9");
  options.routes = nullptr;
  EXPECT_REFUSED(lathe_device_open(&options, &device), LATHE_INVALID_ARGUMENT, "routes");
  options.struct_size = 0;
  EXPECT_REFUSED(lathe_device_open(&options, &device), LATHE_INVALID_ARGUMENT, "struct_size");
  EXPECT_REFUSED(lathe_device_open(nullptr, nullptr), LATHE_INVALID_ARGUMENT, "device");
}

TEST(DeviceOpening, TellsItsLogAndCountsItsCache) {
  const ScratchDirectory scratch;
  const FakeDriver fake;
  std::vector<std::string> lines;
  auto options = api::sized<lathe_device_options>();
  options.cache_directory = scratch.path().c_str();
  options.log_user = &lines;
  options.log = [](void* user, std::int32_t level, const char* line) {
    EXPECT_EQ(level, LATHE_LOG_INFO);
    static_cast<std::vector<std::string>*>(user)->emplace_back(line);
  };
  const std::string dumps = scratch.path() + "/dumps";
  options.dump_directory = dumps.c_str();
  // Written, read, and read where nothing may be written.
  for (int round = 0; round < 3; ++round) {
    options.cache_read_only = round == 2;
    const auto wanted = c_api::device_options_of(options);
    ASSERT_TRUE(wanted) << wanted.error().text();
    EXPECT_EQ(wanted->cache_read_only, round == 2);
    const DeviceHandle device(
        c_api::open_device_handle(DeviceImpl::open(*wanted, fake.platform()).value()).value());
    lathe_kernel* kernel = nullptr;
    ASSERT_EQ(lathe_kernel_load(device.get(), key_of("gemv.f32.k64.n3.w4").get(), &kernel),
              LATHE_OK);
    const KernelHandle loaded(kernel);
    auto info = api::sized<lathe_device_info>();
    ASSERT_EQ(lathe_device_get_info(device.get(), &info), LATHE_OK);
    EXPECT_EQ(info.cache_hits, round == 0 ? 0 : 2);
    EXPECT_EQ(info.cache_writes, round == 0 ? 2 : 0);
    EXPECT_EQ(info.cache_rejects + info.cache_write_failures + info.cache_evictions, 0);
    auto of_kernel = api::sized<lathe_kernel_info>();
    ASSERT_EQ(lathe_kernel_get_info(kernel, &of_kernel), LATHE_OK);
    EXPECT_GT(of_kernel.cubin_bytes, 0);
    EXPECT_GT(of_kernel.load_ms, 0);
    EXPECT_EQ(of_kernel.assemble_ms > 0, round == 0);
  }
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_TRUE(lines[1].starts_with("lathe,1,kernel,built,key=gemv.f32.")) << lines[1];
  EXPECT_TRUE(lines[3].starts_with("lathe,1,kernel,cached,key=gemv.f32.")) << lines[3];
  EXPECT_TRUE(std::filesystem::exists(dumps));

  lathe_device* none = nullptr;
  options.cache_cap_bytes = -1;
  EXPECT_REFUSED(lathe_device_open(&options, &none), LATHE_INVALID_ARGUMENT, "-1 bytes");
}

class CustomKernels : public DeviceFunctions {
 protected:
  lathe_status load(const lathe_custom_kernel& custom, lathe_kernel** kernel) {
    return lathe_kernel_load_custom(device_.get(), &custom, kernel);
  }
  KernelHandle load_or_fail(const lathe_custom_kernel& custom) {
    lathe_kernel* kernel = nullptr;
    EXPECT_EQ(load(custom, &kernel), LATHE_OK) << last_message();
    return KernelHandle(kernel);
  }

  static constexpr lathe_custom_parameter kParameters[] = {
      {.name = "to", .alignment = 4, .reserved = 0},
      {.name = "value", .alignment = 0, .reserved = 0},
      {.name = "count", .alignment = 0, .reserved = 0}};
  lathe_custom_kernel fill_ = {.struct_size = sizeof fill_,
                               .name = "my fill",
                               .source = "extern \"C\" __global__ void fill(...) {}",
                               .entry = "fill",
                               .language = LATHE_LANGUAGE_CUDA,
                               .parameter_count = 3,
                               .parameters = kParameters,
                               .geometry = {1, 1, 32, 0}};
};

TEST_F(CustomKernels, AreLoadedOnceAndLaunched) {
  const KernelHandle first = load_or_fail(fill_), second = load_or_fail(fill_);
  EXPECT_EQ(fake_.calls("cuLibraryLoadData"), 1);
  auto info = api::sized<lathe_kernel_info>();
  ASSERT_EQ(lathe_kernel_get_info(first.get(), &info), LATHE_OK);
  EXPECT_STREQ(info.name, "my fill");
  EXPECT_EQ(info.route, LATHE_ROUTE_NVRTC);
  EXPECT_EQ(info.parameter_count, 3);

  Buffer<std::int32_t> to(5);
  const std::uint64_t arguments[] = {to.address(), 7, 4};  // values may be odd, and 0
  ASSERT_EQ(lathe_kernel_launch(second.get(), arguments, 3, stream_), LATHE_OK) << last_message();
  const std::uint64_t nothing[] = {to.address(), 0, 0};
  ASSERT_EQ(lathe_kernel_launch(second.get(), nothing, 3, stream_), LATHE_OK) << last_message();
  const std::uint64_t null[] = {0, 7, 4};
  EXPECT_REFUSED(lathe_kernel_launch(second.get(), null, 3, stream_), LATHE_INVALID_ARGUMENT,
                 "to of my fill is null");
  fake_.push_context(fake_.make_context());
  fake_.table().cuStreamSynchronize(stream_);
  CUcontext popped = nullptr;
  fake_.table().cuCtxPopCurrent(&popped);
  EXPECT_EQ(to.data()[3], 7);
  EXPECT_EQ(to.data()[4], 0);
}

TEST_F(CustomKernels, TakeTheirMachineCodeFromTheDiskCache) {
  for (const int from_cache : {0, 1}) {
    device_ = open(true);
    const KernelHandle kernel = load_or_fail(fill_);
    auto info = api::sized<lathe_kernel_info>();
    ASSERT_EQ(lathe_kernel_get_info(kernel.get(), &info), LATHE_OK);
    EXPECT_EQ(info.from_cache, from_cache);
  }
  // Other code under the same name is other code, there too.
  device_ = open(true);
  fill_.source = "extern \"C\" __global__ void fill(...) { }";
  const KernelHandle kernel = load_or_fail(fill_);
  auto info = api::sized<lathe_kernel_info>();
  ASSERT_EQ(lathe_kernel_get_info(kernel.get(), &info), LATHE_OK);
  EXPECT_EQ(info.from_cache, 0);
}

TEST_F(CustomKernels, OfOneNameAreOneKernel) {
  const KernelHandle kernel = load_or_fail(fill_);
  lathe_kernel* other = nullptr;
  fill_.geometry.threads = 64;
  EXPECT_REFUSED(load(fill_, &other), LATHE_INVALID_ARGUMENT, "my fill");
  fill_.name = "wider fill";
  EXPECT_NE(load_or_fail(fill_).get(), nullptr);
}

TEST_F(CustomKernels, RefuseWhatCannotBeAKernel) {
  lathe_kernel* kernel = nullptr;
  const auto refused = [&](auto change, const char* words) {
    lathe_custom_kernel custom = fill_;
    change(custom);
    EXPECT_REFUSED(load(custom, &kernel), LATHE_INVALID_ARGUMENT, words);
  };
  refused([](auto& k) { k.name = nullptr; }, "name");
  refused([](auto& k) { k.name = ""; }, "name");
  refused([](auto& k) { k.source = nullptr; }, "source");
  refused([](auto& k) { k.source = ""; }, "source");
  refused([](auto& k) { k.entry = nullptr; }, "entry");
  refused([](auto& k) { k.entry = ""; }, "entry");
  refused([](auto& k) { k.language = 2; }, "language number 2");
  refused([](auto& k) { k.parameter_count = -1; }, "parameters is -1");
  refused([](auto& k) { k.parameters = nullptr; }, "parameters");
  refused([](auto& k) { k.geometry.threads = 0; }, "threads");
  refused([](auto& k) { k.geometry.threads = 2048; }, "threads");
  refused([](auto& k) { k.geometry.grid_y = 0; }, "grid");
  refused([](auto& k) { k.struct_size = 1; }, "struct_size");
  const lathe_custom_parameter uneven[] = {{.name = "to", .alignment = 12, .reserved = 0}};
  refused([&](auto& k) { k.parameters = uneven, k.parameter_count = 1; }, "12");
  fill_.entry = "missing";
  EXPECT_EQ(load(fill_, &kernel), LATHE_DRIVER);
  EXPECT_EQ(kernel, nullptr);
  fill_.entry = "fill";  // what failed is tried again
  EXPECT_NE(load_or_fail(fill_).get(), nullptr);
}

}  // namespace
}  // namespace lathe::testing
