// Holds the three forms of a result to their figures, units and gaps.
#include "bench/decode/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lathe::bench {
namespace {

using Json = nlohmann::json;

std::shared_ptr<SetUp> gpu_set_up() {
  auto set_up = std::make_shared<SetUp>();
  set_up->model = "/models/llama 8b.gguf";
  set_up->parameters = 8'030'000'000;
  set_up->context = 4224;
  set_up->read_rate = 4.5e12;
  set_up->cold_build_seconds = 0.7;
  set_up->report.device = "NVIDIA H200, sm_90a, driver 13.0";
  set_up->report.executor = "graph";
  set_up->report.routes = "llvm 18 kernels";
  set_up->report.kernels_built = 18;
  set_up->report.build_seconds = 0.7;
  set_up->report.upload_seconds = 0.4321;
  set_up->report.weight_bytes = 4'920'000'000;
  return set_up;
}

Row generation() {
  Row row;
  row.set_up = gpu_set_up();
  row.test = {0, 128, 4096};
  row.rates = {200, 300, 250};
  row.bytes_per_token = 5e9;
  row.joules_per_token = 2.4;
  row.watts = 600;
  return row;
}

Row prompt_on_cpu() {
  Row row = generation();
  auto set_up = std::make_shared<SetUp>(*row.set_up);
  set_up->read_rate = 0;
  set_up->cold_build_seconds.reset();
  set_up->report.executor = "cpu";
  set_up->report.kernels_built = 0;
  row.set_up = set_up;
  row.test = {512, 0, 0};
  row.joules_per_token.reset();
  row.watts.reset();
  return row;
}

bool has_line(const std::string& text, const std::string& cells) {
  std::string squeezed;
  for (char c : text) {
    if (c != ' ' || squeezed.empty() || squeezed.back() != ' ') squeezed += c;
  }
  return squeezed.find(cells) != std::string::npos;
}

TEST(Report, MarkdownHasFiguresWithUnits) {
  const std::string text = markdown(std::vector{generation()});
  EXPECT_TRUE(has_line(text,
                       "| model | size | params | executor | kv | test | tokens/s | ms/token "
                       "| GB/s | % of read | J/token | W |"))
      << text;
  EXPECT_TRUE(has_line(text,
                       "| llama 8b.gguf | 4.92 GB | 8.03 B | graph | f16 | tg128 @ d4096 | "
                       "250.00 ± 50.00 | 4.000 | 1250.00 | 27.8 | 2.4000 | 600 |"))
      << text;
  EXPECT_TRUE(has_line(text,
                       "| llama 8b.gguf | graph | f16 | 4224 | 0.700 s cold, 18 kernels | "
                       "0.43 s | llvm 18 kernels | NVIDIA H200, sm_90a, driver 13.0 | 4.50 "
                       "TB/s |"))
      << text;
}

TEST(Report, MarkdownSaysWhatWasNotMeasured) {
  const std::string text = markdown(std::vector{prompt_on_cpu()});
  EXPECT_TRUE(has_line(text,
                       "| cpu | f16 | pp512 | 250.00 ± 50.00 | 4.000 | - | - | not measured "
                       "| not measured |"))
      << text;
  EXPECT_TRUE(has_line(text, "| 4224 | - | 0.43 s |")) << text;
}

TEST(Report, SessionsAreListedOnce) {
  Row first = generation(), second = generation();
  second.set_up = first.set_up;
  const std::string text = markdown(std::vector{first, second});
  EXPECT_EQ(text.find("4224"), text.rfind("4224"));
}

TEST(Report, BuildsAreColdWarmOrBoth) {
  Row row = generation();
  const auto build = [&](std::optional<double> cold, std::optional<double> warm, int built) {
    auto set_up = gpu_set_up();
    set_up->cold_build_seconds = cold;
    set_up->warm_build_seconds = warm;
    set_up->report.kernels_built = built;
    set_up->report.kernels_from_cache = 18 - built;
    row.set_up = set_up;
    return markdown(std::vector{row});
  };
  EXPECT_TRUE(has_line(build({}, 0.03, 0), "| 0.030 s warm, 18 kernels |"));
  EXPECT_TRUE(has_line(build(0.7, 0.03, 0), "| 0.700 s cold, 0.030 s warm, 18 kernels |"));
  EXPECT_TRUE(has_line(build({}, {}, 3), "| 0.700 s, 3 of 18 kernels built |"));
}

TEST(Report, APeerAddsItsSpeedAndTheRatioOfMedians) {
  Row row = generation();
  row.peer_rates = {100, 100, 160};
  const std::string text = markdown(std::vector{row});
  EXPECT_TRUE(has_line(text, "| W | peer tokens/s | ratio |")) << text;
  EXPECT_TRUE(has_line(text, "| 600 | 120.00 ± 34.64 | 2.50 |")) << text;
  Row failed = generation();
  failed.peer_error = "the peer ended with status 1";
  EXPECT_TRUE(has_line(markdown(std::vector{row, failed}), "| 600 | failed | - |"));
}

TEST(Report, JsonHasTheFieldsOfLlamaBenchAndMore) {
  const Json array = Json::parse(json(std::vector{generation(), prompt_on_cpu()}));
  ASSERT_EQ(array.size(), 2u);
  const Json& first = array[0];
  EXPECT_EQ(first["n_prompt"], 0);
  EXPECT_EQ(first["n_gen"], 128);
  EXPECT_EQ(first["n_depth"], 4096);
  EXPECT_EQ(first["avg_ts"], 250);
  EXPECT_EQ(first["stddev_ts"], 50);
  EXPECT_EQ(first["samples_ts"], (Json{200, 300, 250}));
  EXPECT_EQ(first["median_ts"], 250);
  EXPECT_EQ(first["min_ts"], 200);
  EXPECT_EQ(first["max_ts"], 300);
  EXPECT_EQ(first["model_size"], 4'920'000'000);
  EXPECT_EQ(first["bytes_per_second"], 1.25e12);
  EXPECT_NEAR(first["share_of_read_rate"].get<double>(), 0.2778, 1e-4);
  EXPECT_EQ(first["cold_build_seconds"], 0.7);
  EXPECT_TRUE(first["warm_build_seconds"].is_null());
  EXPECT_TRUE(first["ratio_to_peer"].is_null());
  EXPECT_TRUE(array[1]["bytes_per_second"].is_null());
  EXPECT_TRUE(array[1]["joules_per_token"].is_null());
}

TEST(Report, CsvHasAHeaderAndAsManyCellsInEachLine) {
  Row row = generation();
  auto set_up = gpu_set_up();
  set_up->report.device = "no comma";
  row.set_up = set_up;
  const std::string text = csv(std::vector{row, row});
  std::vector<std::ptrdiff_t> commas(1);
  for (char c : text) {
    if (c == ',') ++commas.back();
    if (c == '\n') commas.push_back(0);
  }
  ASSERT_EQ(commas.size(), 4u);
  EXPECT_EQ(commas[0], commas[1]);
  EXPECT_EQ(commas[0], commas[2]);
  EXPECT_TRUE(
      text.starts_with("test,n_prompt,n_gen,n_depth,repetitions,avg_ts,stddev_ts,median_ts,"
                       "min_ts,max_ts,ms_per_token,"))
      << text;
  EXPECT_NE(text.find("\ntg128 @ d4096,0,128,4096,3,250.0,50.0,250.0,200.0,300.0,4.0,"),
            std::string::npos)
      << text;
}

TEST(Report, WithoutResultsThereIsNoTable) {
  EXPECT_EQ(text({}, Output::markdown), "");
  EXPECT_EQ(text({}, Output::csv), "");
  EXPECT_EQ(Json::parse(text({}, Output::json)), Json::array());
}

}  // namespace
}  // namespace lathe::bench
