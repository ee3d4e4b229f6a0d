// Holds converted files to the bytes and the logits of what they were made from, and their writing
// to all or nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>

#include "lathe/runtime/convert.h"
#include "lathe/runtime/session.h"
#include "tests/plan/p64_image.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

Bytes contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Logits after each of some tokens, on the CPU in f32.
std::vector<float> logits_of(const std::shared_ptr<const GgufFile>& file, Fusion fusion) {
  SessionOptions options;
  options.executor = ExecutorKind::cpu;
  options.plan.context = 16;
  options.plan.fusion = fusion;
  options.plan.kv = Format::f32;
  options.threads = 1;  // of a small model: others have little to do, and wait for each other
  auto session = Session::open(file, options);
  EXPECT_TRUE(session) << session.error().text();
  std::vector<float> out;
  if (!session) return out;
  for (const std::int32_t token : {3, 17, 5, 60}) {
    EXPECT_TRUE((*session)->step(token));
    const auto logits = (*session)->logits().value();
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

class ConvertTest : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return directory_.path() + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename());
    return names;
  }

  ScratchDirectory directory_;
};

TEST_F(ConvertTest, LogitsOfBothContainersAreTheSameToTheLastBit) {
  const TinyModel mixed = model_shape(2);                   // as a q4_k_m file
  TinyModel smollm2 = fusible(tiny_llama(), Format::q4_1);  // its shape, but for the vocabulary
  smollm2.layers = 2;
  smollm2.hidden = 576;
  smollm2.heads = 9;
  smollm2.kv_heads = 3;
  smollm2.head_dim = smollm2.rotary = 64;
  smollm2.ffn = 1536;
  smollm2.theta = 100000;
  smollm2.rope_factors = false;
  for (const TinyModel& model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3(),
                                 fusible(tiny_gemma3()), mixed, smollm2}) {
    const auto source = make_model(model);
    ASSERT_TRUE(convert_model(*source, path("model.p64")));
    const auto container = GgufFile::open(path("model.p64"), Integrity::full);
    ASSERT_TRUE(container) << container.error().text();
    ASSERT_TRUE(convert_model(**container, path("model.gguf")));
    const auto again = GgufFile::open(path("model.gguf"));
    ASSERT_TRUE(again) << again.error().text();
    for (const Fusion fusion : {Fusion::none, Fusion::automatic}) {
      const std::vector<float> expected = logits_of(source, fusion);
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(logits_of(*container, fusion), expected) << model.architecture;
      EXPECT_EQ(logits_of(*again, fusion), expected) << model.architecture;
    }
  }
}

TEST_F(ConvertTest, RecordsAloneDecodeTheSame) {
  TinyModel model = tiny_llama();
  model.epsilon = 1e-5;
  const Bytes gguf = tiny_model(model).bytes;
  Bytes bytes = p64_image(gguf, 4096);
  drop_metadata(bytes);
  const auto container = GgufFile::from_bytes(bytes, "records", Integrity::full);
  ASSERT_TRUE(container) << container.error().text();
  EXPECT_EQ(logits_of(*container, Fusion::none),
            logits_of(GgufFile::from_bytes(gguf, "source").value(), Fusion::none));
}

TEST_F(ConvertTest, ThereAndBackIsTheSameFile) {
  const auto source = make_model(2);
  ASSERT_TRUE(convert_model(*source, path("a.p64"), {.page_bytes = 4096}));
  ASSERT_TRUE(convert_model(**GgufFile::open(path("a.p64")), path("b.gguf")));
  ASSERT_TRUE(convert_model(**GgufFile::open(path("b.gguf")), path("c.p64"), {.page_bytes = 4096}));
  EXPECT_TRUE(contents(path("a.p64")) == contents(path("c.p64")));
  const Bytes gguf = contents(path("b.gguf"));
  ASSERT_GE(gguf.size(), tiny_model(model_shape(2)).bytes.size());
  EXPECT_TRUE(std::ranges::equal(tiny_model(model_shape(2)).bytes,
                                 std::span(gguf).first(tiny_model(model_shape(2)).bytes.size())));
  EXPECT_EQ(names().size(), 3u);
}

TEST_F(ConvertTest, AMappingAtAnOddAddressDecodesTheSame) {
  const Bytes gguf = tiny_model(model_shape(1)).bytes;
  const Bytes container = p64_image(gguf, 256);
  const auto expected = logits_of(GgufFile::from_bytes(gguf, "aligned").value(), Fusion::automatic);
  for (const Bytes& bytes : {gguf, container}) {
    Bytes moved(bytes.size() + 1);
    std::ranges::copy(bytes, moved.begin() + 1);
    const auto file = GgufFile::from_bytes(std::span(moved).subspan(1), "moved");
    ASSERT_TRUE(file) << file.error().text();
    EXPECT_EQ(logits_of(*file, Fusion::automatic), expected);
  }
}

// Whoever checked again would find the damage.
TEST_F(ConvertTest, ChecksumsAreComputedWhenAFileIsOpenedAndNeverAgain) {
  Bytes bytes = p64_image(tiny_model(model_shape(1)).bytes, 256);
  const auto file = GgufFile::from_bytes(bytes, "adopted", Integrity::full);
  ASSERT_TRUE(file);
  const std::vector<float> expected = logits_of(*file, Fusion::automatic);
  const auto header = number_at<p64::Header>(bytes, 0);
  for (std::size_t i = 0; i <= header.tensor_count; ++i)
    set_number(bytes, header.checksum + 4 * i, std::uint32_t{0x5a5a5a5a});
  EXPECT_FALSE(GgufFile::from_bytes(bytes, "again", Integrity::metadata));
  EXPECT_EQ(logits_of(*file, Fusion::automatic), expected);
}

TEST_F(ConvertTest, ToldOfItsProgress) {
  std::int64_t last = 0;
  std::int64_t total = 0;
  ConvertOptions options;
  options.progress = [&](std::string_view, std::int64_t done, std::int64_t of) {
    EXPECT_GT(done, last);
    last = done;
    total = of;
  };
  ASSERT_TRUE(convert_model(*make_model(1), path("model.p64"), options));
  EXPECT_EQ(std::uintmax_t(total), fs::file_size(path("model.p64")));
  EXPECT_LE(last, total);
  EXPECT_GT(last, total - 64);
}

TEST_F(ConvertTest, CancelledOrRefusedLeavesWhatWasThere) {
  std::ofstream(path("model.p64")) << "before";
  ConvertOptions options;
  options.cancelled = [] { return true; };
  const auto cancelled = convert_model(*make_model(1), path("model.p64"), options);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, Code::cancelled);
  options = {};
  options.page_bytes = 1000;
  EXPECT_EQ(convert_model(*make_model(1), path("model.p64"), options).error().code,
            Code::invalid_argument);
  EXPECT_EQ(contents(path("model.p64")).size(), 6u);
  EXPECT_EQ(names(), std::vector<std::string>{"model.p64"});
  const auto nowhere = convert_model(*make_model(1), path("none/model.p64"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::io);
  EXPECT_NE(nowhere.error().message.find("none/model.p64"), std::string::npos);
}

TEST_F(ConvertTest, DamageIsFoundWhileTensorsAreCopied) {
  Bytes bytes = p64_image(tiny_model(model_shape(1)).bytes, 256);
  const std::size_t at = entry_of(bytes, "blk.0.ffn_up.weight");
  bytes[number_at<p64::TensorEntry>(bytes, at).blob + 5] ^= std::byte{1};
  for (const Integrity integrity : {Integrity::metadata, Integrity::structure}) {
    const auto file = GgufFile::from_bytes(bytes, "damaged", integrity);
    ASSERT_TRUE(file);
    const auto refused = convert_model(**file, path("model.gguf"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::corrupt_file);
    EXPECT_NE(refused.error().message.find("'blk.0.ffn_up.weight' is damaged"), std::string::npos);
    EXPECT_EQ(names(), std::vector<std::string>{});
  }
}

TEST_F(ConvertTest, WeightsAreReplacedInP64ContainersOnly) {
  const Bytes bytes = p64_image(tiny_model(model_shape(1)).bytes, 256);
  const auto file = GgufFile::from_bytes(bytes, "container").value();
  const auto refused =
      convert_model(*file, path("model.gguf"), {.weights = P64Weights::ternary_ffn});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid_argument);
  EXPECT_EQ(names(), std::vector<std::string>{});
}

// Two products of each 32 weights are rounded to 11 bits, so no weight differs by more than 2^-11
// of its scale's greatest: a hundredth of the logits' size is far more than comes of that, and far
// less than what a weight read wrongly does.
TEST_F(ConvertTest, Q4KSoaDecodesNearlyTheSame) {
  const auto source = make_model(fusible(tiny_llama(), Format::q4_k));
  ASSERT_TRUE(convert_model(*source, path("model.p64"), {.weights = P64Weights::q4_k_soa}));
  const auto container = GgufFile::open(path("model.p64"), Integrity::full);
  ASSERT_TRUE(container) << container.error().text();
  EXPECT_EQ((*container)->tensor("blk.0.attn_q.weight")->ggml_type, p64::kTypeQ4KSoa);
  const std::vector<float> expected = logits_of(source, Fusion::none);
  const std::vector<float> found = logits_of(*container, Fusion::none);
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_FALSE(found.empty());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(double(found[i]) - expected[i], 2);
    size += std::pow(double(expected[i]), 2);
  }
  EXPECT_LT(std::sqrt(difference / size), 0.01);
  EXPECT_GT(difference, 0);
}

TEST_F(ConvertTest, TwoWritersOfAFileDoNotMeet) {
  const auto model = make_model(1);
  const int stale = 64;  // as an ended process of the same number leaves them
  for (int i = 0; i < stale; ++i)
    std::ofstream(path("model.p64") + "." + std::to_string(::getpid()) + "." + std::to_string(i) +
                  ".part");
  bool inner = false;
  ConvertOptions options;
  options.progress = [&](std::string_view, std::int64_t, std::int64_t) {
    if (inner) return;
    inner = true;
    const auto second = convert_model(*model, path("model.p64"));
    EXPECT_TRUE(second) << second.error().text();
  };
  const auto first = convert_model(*model, path("model.p64"), options);
  EXPECT_TRUE(first) << first.error().text();
  EXPECT_TRUE(inner);
  EXPECT_EQ(names().size(), std::size_t{stale} + 1);
}

// A file whose bytes take more memory than there is.
class Unreadable : public GgufFile {
 public:
  explicit Unreadable(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}
  const FileFacts& facts() const override { return file_->facts(); }
  const std::string& path() const override { return file_->path(); }
  std::span<const GgufTensor> tensors() const override { return file_->tensors(); }
  const GgufTensor* tensor(std::string_view name) const override { return file_->tensor(name); }
  std::span<const std::byte> data(const GgufTensor&) const override { throw std::bad_alloc(); }
  const GgufValue* value(std::string_view key) const override { return file_->value(key); }

 private:
  std::shared_ptr<const GgufFile> file_;
};

TEST_F(ConvertTest, TooLittleMemoryIsAnError) {
  const auto refused = convert_model(Unreadable(make_model(1)), path("model.p64"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::out_of_memory);
  ConvertOptions options;
  options.progress = [](std::string_view, std::int64_t, std::int64_t) { throw std::bad_alloc(); };
  EXPECT_EQ(convert_model(*make_model(1), path("model.p64"), options).error().code,
            Code::out_of_memory);
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(ConvertTest, AFileIsNotConvertedOntoItself) {
  ASSERT_TRUE(convert_model(*make_model(1), path("model.p64")));
  fs::create_hard_link(path("model.p64"), path("link"));
  const auto file = GgufFile::open(path("model.p64")).value();
  for (const char* name : {"model.p64", "link"}) {
    const auto refused = convert_model(*file, path(name));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
  }
}

// A limit on the size of files stands for a full disk: writing fails part of the way.
TEST_F(ConvertTest, AFullDiskIsAnErrorAndLeavesNothing) {
  const auto model = make_model(1);
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 100000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = convert_model(*model, path("model.p64"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::io);
  EXPECT_NE(written.error().message.find("model.p64"), std::string::npos);
  EXPECT_EQ(names(), std::vector<std::string>{});
}

}  // namespace
}  // namespace lathe::testing
