// Holds sessions to the routes that they are given: which plan is taken, what is refused before
// anything is loaded.
#include <gtest/gtest.h>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

SessionOptions by_routes(std::vector<Route> routes, Fusion fusion) {
  SessionOptions options;
  options.executor = fusion == Fusion::automatic ? ExecutorKind::automatic : ExecutorKind::graph;
  options.plan.context = 32;
  options.plan.fusion = fusion;
  options.disk_cache = false;
  options.routes = std::move(routes);
  return options;
}

// A format without a template, in one matrix.
std::shared_ptr<const GgufFile> partly_q5_k() {
  TinyModel model = model_shape(2);
  model.exceptions["blk.1.ffn_up.weight"] = Format::q5_k;
  return make_model(model);
}

TEST(SessionRoutes, ARouteThatDoesNotCoverTheModelIsAnErrorThatNamesTheKey) {
  for (const Fusion fusion : {Fusion::none, Fusion::automatic}) {
    FakeDriver fake;
    const auto refused =
        open_session(partly_q5_k(), by_routes({Route::text}, fusion), fake.platform());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::unsupported);
    EXPECT_NE(refused.error().message.find("gemv.q5_k."), std::string::npos)
        << refused.error().text();
    EXPECT_EQ(fake.calls("cuLibraryLoadData"), 0);
  }
}

TEST(SessionRoutes, KernelsThatGoAnotherWayThanTheFirstSayWhy) {
  FakeDriver fake;
  const auto session = open_session(
      partly_q5_k(), by_routes({Route::text, Route::nvrtc}, Fusion::none), fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  const SessionReport& report = (*session)->report();
  EXPECT_NE(report.routes.find("nvrtc 1 kernel"), std::string::npos) << report.routes;
  EXPECT_NE(report.routes.find("text"), std::string::npos) << report.routes;
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes[0].find("text refused"), std::string::npos);
}

// Templates make the kernels of single operations alone.
TEST(SessionRoutes, WhereNoRouteMakesTheFusedKernelsThePlanIsTheOther) {
  FakeDriver fake;
  const auto session =
      open_session(make_model(), by_routes({Route::text}, Fusion::automatic), fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  const Plan& plan = (*session)->plan();
  EXPECT_EQ(plan.options.fusion, Fusion::none);
  const SessionReport& report = (*session)->report();
  EXPECT_EQ(report.executor, "graph");
  EXPECT_EQ(report.chunk, 0);
  EXPECT_EQ(report.routes, "text " + std::to_string(plan.distinct_keys().size()) + " kernels");
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_NE(plan.notes[0].find("No route that was asked for makes kernel "), std::string::npos)
      << plan.notes[0];
}

TEST(SessionRoutes, AFusedPlanThatWasAskedForIsNotReplaced) {
  FakeDriver fake;
  const auto refused =
      open_session(make_model(), by_routes({Route::text}, Fusion::full), fake.platform());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unsupported);
  EXPECT_EQ(fake.calls("cuLibraryLoadData"), 0);
}

}  // namespace
}  // namespace lathe::testing
