// Holds nvJitLink, where it is installed, and the choice of an assembler to their contract.
#include "runtime/assembler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/read_rate.h"
#include "runtime/service_kernel.h"
#include "tests/runtime/fake_driver.h"

namespace lathe::testing {
namespace {

constexpr const char* kGood = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry nothing() {
  ret;
}
)";

// The fifth line has a register that nobody declared.
constexpr const char* kBroken = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry nothing() {
  add.u32 %missing, 1, 2;
  ret;
}
)";

class NvJitLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_nvjitlink(LATHE_TEST_NVJITLINK);
    if (!opened) GTEST_SKIP() << "there is no libnvJitLink: " << opened.error().message;
    assembler_ = std::move(opened).value();
  }

  const Target target_ = parse_target("sm_90a").value();
  std::unique_ptr<Assembler> assembler_;
};

TEST_F(NvJitLinkTest, MakesACubin) {
  const auto cubin = assembler_->assemble(kGood, target_);
  ASSERT_TRUE(cubin) << cubin.error().text();
  ASSERT_GT(cubin->size(), 4u);
  EXPECT_EQ((*cubin)[0], std::byte{0x7f});
  EXPECT_EQ((*cubin)[1], std::byte{'E'});
  EXPECT_EQ(assembler_->name().find("nvJitLink "), 0u) << assembler_->name();
}

TEST_F(NvJitLinkTest, BrokenPtxIsAnErrorWithTheLogAndTheLine) {
  const auto cubin = assembler_->assemble(kBroken, target_);
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().code, Code::compile);
  const std::string text = cubin.error().text();
  EXPECT_NE(text.find("missing"), std::string::npos) << text;
  EXPECT_NE(text.find("5 |   add.u32 %missing, 1, 2;"), std::string::npos) << text;
  EXPECT_TRUE(assembler_->assemble(kGood, target_));  // and spoils nothing
}

TEST_F(NvJitLinkTest, NoTextIsAnError) {
  EXPECT_FALSE(assembler_->assemble("", target_));
  EXPECT_FALSE(assembler_->assemble("this is no PTX", target_));
}

TEST_F(NvJitLinkTest, PtxOfTheFutureSaysWhatToDo) {
  std::string text = kGood;
  text.replace(text.find("8.0"), 3, "42.0");
  const auto cubin = assembler_->assemble(text, target_);
  ASSERT_FALSE(cubin);
  EXPECT_NE(cubin.error().text().find("hint"), std::string::npos) << cubin.error().text();
}

TEST_F(NvJitLinkTest, ThreadsMayAssembleAtOnce) {
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        good += bool(assembler_->assemble(i % 2 ? kGood : kBroken, target_)) == (i % 2 == 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 12);
}

TEST_F(NvJitLinkTest, IsChosenUnlessTheDriverIsOfAnEarlierGeneration) {
  std::vector<std::string> notes;
  {
    FakeDriver fake({.driver_version = 99000});
    const Context context = Context::open(fake.table(), nullptr, 0).value();
    const auto chosen = choose_assembler(context, LATHE_TEST_NVJITLINK, notes);
    ASSERT_TRUE(chosen);
    EXPECT_EQ((*chosen)->name(), assembler_->name());
    EXPECT_TRUE(notes.empty());
    EXPECT_EQ(choose_assembler(context, "off", notes).value()->name(), "driver 99.0");
  }
  FakeDriver fake({.driver_version = 11000});
  const Context context = Context::open(fake.table(), nullptr, 0).value();
  EXPECT_EQ(choose_assembler(context, LATHE_TEST_NVJITLINK, notes).value()->name(), "driver 11.0");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("later drivers"), std::string::npos);
}

// Hands the fake driver what it loads, after the real assembler has accepted the PTX.
class CheckingAssembler final : public Assembler {
 public:
  explicit CheckingAssembler(const Assembler& real) : real_(real) {}
  const std::string& name() const override { return real_.name(); }
  Result<Cubin> assemble(std::string_view ptx, const Target& target) const override {
    LATHE_TRY(real_.assemble(ptx, target));
    return FakeToolchain().assembler().assemble(ptx, target);
  }

 private:
  const Assembler& real_;
};

class CheckingToolchain final : public Toolchain {
 public:
  explicit CheckingToolchain(const Assembler& real) : assembler_(real) {}
  Result<void> covers(const KernelKey&, Route) const override { return {}; }
  Result<std::string> compiler(Route) const override { return std::string("none"); }
  std::string fingerprint() const override { return {}; }
  Result<Ptx> emit(const KernelKey&, const Target&, Route) const override {
    return Error{Code::unsupported, "this tool chain only assembles", {}};
  }
  const Assembler& assembler() const override { return assembler_; }

 private:
  CheckingAssembler assembler_;
};

TEST_F(NvJitLinkTest, AcceptsTheRuntimesOwnKernelsForEveryTarget) {
  for (int compute : {80, 86, 89, 90, 100, 120}) {
    FakeDriver fake({.compute = compute});
    Platform platform = fake.platform();
    platform.toolchain = [&] { return std::make_unique<CheckingToolchain>(*assembler_); };
    DeviceOptions options;
    options.disk_cache = false;
    const auto device = DeviceImpl::open(options, platform);
    ASSERT_TRUE(device) << device.error().text();
    const auto scope = (*device)->context().enter();
    const auto advance = load_advance_kernel(**device);
    EXPECT_TRUE(advance) << compute << advance.error().text();
    const auto rate = measure_read_rate(**device, nullptr);
    EXPECT_TRUE(rate) << compute << rate.error().text();
  }
}

TEST(AssemblerChoice, APathThatNamesNoLibraryIsAnError) {
  FakeDriver fake;
  const Context context = Context::open(fake.table(), nullptr, 0).value();
  std::vector<std::string> notes;
  const auto missing = choose_assembler(context, "/no/such/libnvJitLink.so", notes);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_FALSE(open_nvjitlink("libdl.so.2"));
}

TEST(AssemblyErrors, QuoteTheLinesTheLogNames) {
  const Error error = assembly_error("x", "ptxas input, line 2; error : no\n", "one\ntwo\nthree");
  EXPECT_NE(error.text().find("    1 | one\n    2 | two\n    3 | three"), std::string::npos)
      << error.text();
  EXPECT_EQ(assembly_error("x", "no line", "one").details.size(), 1u);
  EXPECT_EQ(assembly_error("x", "a, line 99999; b", "one").details.size(), 2u);
}

}  // namespace
}  // namespace lathe::testing
