// Holds keys, compilers and PTX of the C interface to their contract. No driver.
#include <cstddef>
#include <string_view>
#include <thread>
#include <vector>

#include "lathe/codegen/emit.h"
#include "tests/c_api/fixture.h"

namespace lathe::testing {
namespace {

constexpr const char* kGemv = "gemv.q4_k.k4096.n14336.w4";

TEST(Versions, AreThoseOfTheHeader) {
  EXPECT_STREQ(lathe_version_text(), "0.1.0");
  EXPECT_EQ(lathe_version(), 100);
  EXPECT_EQ(lathe_abi_version(), LATHE_ABI_VERSION);
  EXPECT_STREQ(lathe_status_text(LATHE_OUT_OF_MEMORY), "out of memory");
  EXPECT_NE(lathe_status_text(12345), nullptr);
}

TEST(KeyFunctions, DescribeAKernel) {
  const Key key = key_of(kGemv);
  auto info = api::sized<lathe_key_info>();
  ASSERT_EQ(lathe_key_get_info(key.get(), &info), LATHE_OK);
  EXPECT_STREQ(info.text, kGemv);
  EXPECT_STREQ(info.entry, "gemv_q4_k_k4096_n14336_w4");
  EXPECT_STREQ(info.type, "gemv");
  const KernelKey same = parse_key(kGemv).value();
  EXPECT_EQ(info.geometry.grid_x, row(same.type).geometry(same).grid_x);
  EXPECT_EQ(info.geometry.threads, 128u);
  EXPECT_EQ(info.bytes_read, row(same.type).cost(same).bytes_read);
  ASSERT_EQ(info.parameter_count, 3);
  auto weights = api::sized<lathe_parameter>();
  bool seen = false;
  for (int i = 0; i < info.parameter_count; ++i) {
    ASSERT_EQ(lathe_key_get_parameter(key.get(), i, &weights), LATHE_OK);
    if (weights.element != LATHE_ELEMENT_BLOCKS) continue;
    seen = true;
    EXPECT_EQ(weights.bytes, std::int64_t{4096} / 256 * 144 * 14336);
    EXPECT_EQ(weights.access, LATHE_ACCESS_READ);
  }
  EXPECT_TRUE(seen);
  EXPECT_REFUSED(lathe_key_get_parameter(key.get(), 3, &weights), LATHE_INVALID_ARGUMENT, "3");
  EXPECT_REFUSED(lathe_key_get_parameter(key.get(), -1, &weights), LATHE_INVALID_ARGUMENT, "-1");
}

TEST(KeyFunctions, RefuseWhatIsNoKernel) {
  lathe_key* key = nullptr;
  EXPECT_REFUSED(lathe_key_parse("gemm.q4_k", &key), LATHE_INVALID_ARGUMENT, "gemm");
  EXPECT_REFUSED(lathe_key_parse("gemv.q4_k.k100.n1.w4", &key), LATHE_INVALID_ARGUMENT, "multiple");
  auto error = api::sized<lathe_error>();
  ASSERT_EQ(lathe_last_error(&error), LATHE_OK);
  EXPECT_STREQ(error.key, "gemv.q4_k.k100.n1.w4");
  EXPECT_REFUSED(lathe_key_parse(nullptr, &key), LATHE_INVALID_ARGUMENT, "text");
  EXPECT_REFUSED(lathe_key_parse(kGemv, nullptr), LATHE_INVALID_ARGUMENT, "key");
  EXPECT_EQ(key, nullptr);
}

TEST(Handles, ThatAreClosedAreToldApartFromOpenOnes) {
  lathe_key* closed = key_of(kGemv).get();  // closed at the end of this line
  const Key later = key_of(kGemv);          // in its place, perhaps
  EXPECT_NE(later.get(), closed);
  auto info = api::sized<lathe_key_info>();
  EXPECT_REFUSED(lathe_key_get_info(closed, &info), LATHE_INVALID_ARGUMENT, "closed");
  EXPECT_REFUSED(lathe_key_close(closed), LATHE_INVALID_ARGUMENT, "closed");
  EXPECT_REFUSED(lathe_key_get_info(nullptr, &info), LATHE_INVALID_ARGUMENT, "null");
  EXPECT_EQ(lathe_key_close(nullptr), LATHE_OK);
  EXPECT_EQ(lathe_key_get_info(later.get(), &info), LATHE_OK);
}

TEST(Handles, OfAnotherKindAndOfNoneAreRefused) {
  const Key key = key_of(kGemv);
  int here = 0;
  auto info = api::sized<lathe_ptx_info>();
  for (void* wrong : {static_cast<void*>(key.get()), static_cast<void*>(&here),
                      reinterpret_cast<void*>(~std::uintptr_t{0}), reinterpret_cast<void*>(8)}) {
    EXPECT_REFUSED(lathe_ptx_get_info(static_cast<lathe_ptx*>(wrong), &info),
                   LATHE_INVALID_ARGUMENT, "PTX handle");
  }
}

TEST(Handles, OpenByTheThousandFromManyThreads) {
  const auto work = [] {
    std::vector<Key> keys;
    for (int i = 0; i < 1000; ++i) keys.push_back(key_of(kGemv));
    auto info = api::sized<lathe_key_info>();
    for (const Key& key : keys) EXPECT_EQ(lathe_key_get_info(key.get(), &info), LATHE_OK);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST(Structs, OfAnySoundSizeAreServed) {
  const Key key = key_of(kGemv);
  lathe_key_info info = {};
  for (std::size_t wrong :
       {std::size_t{0}, std::size_t{3}, std::size_t{20}, std::size_t{1} << 40}) {
    info.struct_size = wrong;
    EXPECT_REFUSED(lathe_key_get_info(key.get(), &info), LATHE_INVALID_ARGUMENT,
                   "sizeof(lathe_key_info)");
  }
  EXPECT_REFUSED(lathe_key_get_info(key.get(), nullptr), LATHE_INVALID_ARGUMENT, "lathe_key_info");

  // A program with an older, shorter header.
  info = {};
  info.struct_size = offsetof(lathe_key_info, type);
  ASSERT_EQ(lathe_key_get_info(key.get(), &info), LATHE_OK);
  EXPECT_STREQ(info.text, kGemv);
  EXPECT_EQ(info.type, nullptr);
  EXPECT_EQ(info.parameter_count, 0);

  // One with a newer, longer header.
  struct Newer {
    lathe_compiler_options known;
    std::uint64_t added;
  } newer = {.known = {.struct_size = sizeof newer, .nvrtc = nullptr, .llvm = nullptr}, .added = 0};
  lathe_compilers* compilers = nullptr;
  ASSERT_EQ(lathe_compilers_open(&newer.known, &compilers), LATHE_OK);
  EXPECT_EQ(lathe_compilers_close(compilers), LATHE_OK);
  newer.added = 1;
  EXPECT_REFUSED(lathe_compilers_open(&newer.known, &compilers), LATHE_UNSUPPORTED,
                 "lathe_compiler_options");
}

TEST(LastError, HasDetailsAndBelongsToItsThread) {
  lathe_key* key = nullptr;
  ASSERT_NE(lathe_key_parse("gemv.q4_k.k100.n1.w4", &key), LATHE_OK);
  std::thread([] {
    auto error = api::sized<lathe_error>();
    ASSERT_EQ(lathe_last_error(&error), LATHE_OK);
    EXPECT_EQ(error.status, LATHE_OK);
    EXPECT_STREQ(error.message, "");
  }).join();

  const CompilersHandle compilers = [] {
    const lathe_compiler_options options = {
        .struct_size = sizeof options, .nvrtc = "/none.so", .llvm = "/none.so"};
    lathe_compilers* opened = nullptr;
    EXPECT_EQ(lathe_compilers_open(&options, &opened), LATHE_OK);
    return CompilersHandle(opened);
  }();
  const Key fused = key_of("gemv.q4_k.k4096.n14336.w4");
  lathe_ptx* ptx = nullptr;
  ASSERT_NE(lathe_ptx_emit(compilers.get(), fused.get(), "sm_90a", LATHE_ROUTE_NVRTC, &ptx),
            LATHE_OK);
  auto error = api::sized<lathe_error>();
  ASSERT_EQ(lathe_last_error(&error), LATHE_OK);
  EXPECT_NE(std::string_view(error.text).find(error.message), std::string_view::npos);
  const char *name = nullptr, *value = nullptr;
  for (int i = 0; i < error.detail_count; ++i) {
    ASSERT_EQ(lathe_last_error_detail(i, &name, &value), LATHE_OK);
    EXPECT_NE(std::string_view(error.text).find(value), std::string_view::npos) << name;
  }
  EXPECT_EQ(lathe_last_error_detail(error.detail_count, &name, &value), LATHE_INVALID_ARGUMENT);
  EXPECT_EQ(lathe_last_error_detail(-1, &name, &value), LATHE_INVALID_ARGUMENT);
  EXPECT_EQ(lathe_last_error_detail(0, nullptr, &value), LATHE_INVALID_ARGUMENT);
  EXPECT_EQ(lathe_last_error(nullptr), LATHE_INVALID_ARGUMENT);
  lathe_error unsized = {};
  EXPECT_EQ(lathe_last_error(&unsized), LATHE_INVALID_ARGUMENT);
  // Asking did not change the answer.
  EXPECT_EQ(last_message(), error.message);
}

class EmissionTest : public ::testing::Test {
 protected:
  CompilersHandle compilers_ = [] {
    lathe_compilers* opened = nullptr;
    EXPECT_EQ(lathe_compilers_open(nullptr, &opened), LATHE_OK);
    return CompilersHandle(opened);
  }();
  Key key_ = key_of(kGemv);
};

TEST_F(EmissionTest, TextRouteNeedsNothing) {
  lathe_ptx* made = nullptr;
  ASSERT_EQ(lathe_ptx_emit(compilers_.get(), key_.get(), "sm_80", LATHE_ROUTE_TEXT, &made),
            LATHE_OK)
      << last_message();
  const PtxHandle ptx(made);
  key_.reset();  // what was made of it stays
  compilers_.reset();
  auto info = api::sized<lathe_ptx_info>();
  ASSERT_EQ(lathe_ptx_get_info(ptx.get(), &info), LATHE_OK);
  const std::string_view text = info.text;
  EXPECT_EQ(text.size(), info.text_bytes);
  EXPECT_NE(text.find(".target sm_80"), std::string_view::npos);
  EXPECT_NE(text.find(std::string(".entry ") + info.entry), std::string_view::npos);
  EXPECT_STREQ(info.target, "sm_80");
  EXPECT_EQ(info.route, LATHE_ROUTE_TEXT);
  EXPECT_EQ(info.geometry.threads, 128u);
}

TEST_F(EmissionTest, RefusesWrongArguments) {
  lathe_ptx* ptx = nullptr;
  EXPECT_REFUSED(lathe_ptx_emit(compilers_.get(), key_.get(), "sm_1", LATHE_ROUTE_TEXT, &ptx),
                 LATHE_UNSUPPORTED, "sm_1");
  EXPECT_REFUSED(lathe_ptx_emit(compilers_.get(), key_.get(), "sm_80", 4, &ptx),
                 LATHE_INVALID_ARGUMENT, "route number 4");
  EXPECT_REFUSED(lathe_ptx_emit(compilers_.get(), key_.get(), "sm_80", -1, &ptx),
                 LATHE_INVALID_ARGUMENT, "route number -1");
  EXPECT_REFUSED(lathe_ptx_emit(nullptr, key_.get(), "sm_80", LATHE_ROUTE_TEXT, &ptx),
                 LATHE_INVALID_ARGUMENT, "compilers");
  EXPECT_REFUSED(lathe_ptx_emit(compilers_.get(), nullptr, "sm_80", LATHE_ROUTE_TEXT, &ptx),
                 LATHE_INVALID_ARGUMENT, "key");
  EXPECT_REFUSED(lathe_ptx_emit(compilers_.get(), key_.get(), nullptr, LATHE_ROUTE_TEXT, &ptx),
                 LATHE_INVALID_ARGUMENT, "target");
  EXPECT_REFUSED(lathe_ptx_emit(compilers_.get(), key_.get(), "sm_80", LATHE_ROUTE_TEXT, nullptr),
                 LATHE_INVALID_ARGUMENT, "ptx");
  EXPECT_EQ(ptx, nullptr);
}

TEST_F(EmissionTest, TellsWhatARouteWouldUse) {
  const char *version = nullptr, *again = nullptr;
  ASSERT_EQ(lathe_compilers_get_version(compilers_.get(), LATHE_ROUTE_TEXT, &version), LATHE_OK);
  EXPECT_STREQ(version, "PTX templates");
  ASSERT_EQ(lathe_compilers_get_version(compilers_.get(), LATHE_ROUTE_TEXT, &again), LATHE_OK);
  EXPECT_EQ(again, version);
  EXPECT_REFUSED(lathe_compilers_get_version(compilers_.get(), LATHE_ROUTE_DEFAULT, &version),
                 LATHE_INVALID_ARGUMENT, "route number 0");
}

}  // namespace
}  // namespace lathe::testing
