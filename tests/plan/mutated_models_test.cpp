// Opens and plans model files that have been damaged at random: flipped bits, cut ends, absurd
// counts, exchanged offsets, pieces lost, doubled or moved. Each is planned or refused with a
// sentence, soon.
//
// Its own executable: --files=N takes as many files, --messages prints what was refused how.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lathe/plan/gguf.h"
#include "lathe/plan/model_spec.h"
#include "lathe/plan/plan.h"
#include "tests/plan/tiny_models.h"

namespace {
int g_files = 400;
bool g_messages = false;
}  // namespace

namespace lathe::testing {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLimit{5};

std::size_t below(Random& random, std::size_t limit) {
  return std::size_t(random() % std::max<std::size_t>(limit, 1));
}

std::vector<GgufImage> sound_models() {
  std::vector<GgufImage> images;
  for (TinyModel model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3(),
                          fusible(tiny_llama()), fusible(tiny_qwen3(), Format::q8_0)}) {
    model.layers = 1;
    model.vocab = 32;
    images.push_back(tiny_model(model));
  }
  return images;
}

std::uint64_t absurd_number(Random& random) {
  constexpr std::uint64_t numbers[] = {
      0,          1,          3,          255,       256,   0x7fffffff,  0x80000000,  0xffffffff,
      1ull << 40, 1ull << 62, ~0ull >> 1, ~0ull - 7, ~0ull, ~0ull / 256, ~0ull / 144, 1ull << 33};
  return numbers[below(random, std::size(numbers))];
}

void damage(GgufImage& image, Random& random) {
  Bytes& bytes = image.bytes;
  const auto field = [&]() -> const GgufField& {
    return image.fields[below(random, image.fields.size())];
  };
  const auto fits = [&](const GgufField& f) { return f.offset + f.bytes <= bytes.size(); };
  // Most of a file is weights, of which no damage can be seen: half of it falls into the head.
  const std::size_t head = std::min(bytes.size(), image.fields.back().offset + 16);
  const auto place = [&] { return below(random, random() % 2 ? head : bytes.size()); };
  switch (below(random, 7)) {
    case 0:
      for (std::size_t flips = 1 + below(random, 8); flips > 0 && !bytes.empty(); --flips)
        bytes[place()] ^= std::byte(1 << below(random, 8));
      return;
    case 1:
      bytes.resize(place());
      return;
    case 2:
    case 3:
      if (const GgufField& f = field(); fits(f)) image.set(f.name, absurd_number(random));
      return;
    case 4: {  // two numbers change places
      const GgufField& a = field();
      const GgufField& b = field();
      if (a.bytes == b.bytes && fits(a) && fits(b))
        std::swap_ranges(bytes.begin() + std::ptrdiff_t(a.offset),
                         bytes.begin() + std::ptrdiff_t(a.offset + a.bytes),
                         bytes.begin() + std::ptrdiff_t(b.offset));
      return;
    }
    default: {  // a piece is lost, doubled, or written over another
      if (bytes.empty()) return;
      const std::size_t from = place();
      const std::size_t size = std::min(1 + below(random, 64), bytes.size() - from);
      const auto begin = bytes.begin() + std::ptrdiff_t(from);
      const Bytes piece(begin, begin + std::ptrdiff_t(size));
      const std::size_t to = below(random, bytes.size() - size + 1);
      const std::size_t kind = below(random, 3);
      if (kind == 0) bytes.erase(begin, begin + std::ptrdiff_t(size));
      if (kind == 1) bytes.insert(bytes.begin() + std::ptrdiff_t(to), piece.begin(), piece.end());
      if (kind == 2) std::ranges::copy(piece, bytes.begin() + std::ptrdiff_t(to));
    }
  }
}

// What became of files, by the sentence of the refusal without its numbers and names.
class Outcomes {
 public:
  template <typename T>
  bool note(const char* part, const Result<T>& result) {
    if (result) return true;
    const std::string& message = result.error().message;
    EXPECT_GT(message.size(), 10u) << message;
    EXPECT_EQ(std::ranges::count(message, '\n'), 0) << message;
    EXPECT_NE(result.error().code, Code::internal) << message;
    ++refused_[part];
    kinds_[part + (": " + kind_of(message))].first++;
    kinds_[part + (": " + kind_of(message))].second = message;
    return false;
  }
  void note_planned() { ++planned_; }
  void print() const {
    std::printf("%d planned", planned_);
    for (const auto& [part, count] : refused_)
      std::printf(", %d refused by %s", count, part.c_str());
    std::printf("; %zu kinds of refusal\n", kinds_.size());
    if (!g_messages) return;
    for (const auto& [kind, seen] : kinds_)
      std::printf("%6d %s\n", seen.first, seen.second.c_str());
  }
  int planned() const { return planned_; }
  std::size_t kinds() const { return kinds_.size(); }

 private:
  static std::string kind_of(const std::string& message) {
    std::string kind;
    bool quoted = false;
    for (const char c : message) {
      if (c == '\'' || c == '"') quoted = !quoted;
      const bool digit = c >= '0' && c <= '9';
      if (quoted || (digit && kind.ends_with('#'))) continue;
      kind += digit ? '#' : c;
    }
    return kind;
  }

  int planned_ = 0;
  std::map<std::string, int> refused_;
  std::map<std::string, std::pair<int, std::string>> kinds_;
};

void plan(const Result<std::shared_ptr<const GgufFile>>& file, Outcomes& outcomes) {
  if (!outcomes.note("the reader", file)) return;
  if (!outcomes.note("the family", read_model_spec(**file))) return;
  for (const Fusion fusion : {Fusion::none, Fusion::full, Fusion::automatic}) {
    PlanOptions options;
    options.fusion = fusion;
    options.context = 64;
    const bool planned = outcomes.note("the plan", build_plan(**file, options));
    if (planned && fusion == Fusion::automatic) outcomes.note_planned();
  }
}

TEST(MutatedModels, ArePlannedOrRefusedSoon) {
  const std::vector<GgufImage> models = sound_models();
  const fs::path path = fs::path(::testing::TempDir()) /
                        ("mutated" + std::to_string(std::random_device()()) + ".gguf");
  Outcomes outcomes;
  Clock::duration slowest{};
  for (int i = 0; i < g_files && !HasFailure(); ++i) {
    SCOPED_TRACE("file " + std::to_string(i));
    Random random(std::uint64_t(i) + 20261130);
    GgufImage image = models[below(random, models.size())];
    for (std::size_t times = 1 + below(random, 3); times > 0; --times) damage(image, random);
    const auto start = Clock::now();
    // From memory of exactly its size, so that a byte too far is seen; and, of some, from a file.
    const auto copy = std::make_unique<std::byte[]>(image.bytes.size());
    std::ranges::copy(image.bytes, copy.get());
    plan(GgufFile::from_bytes({copy.get(), image.bytes.size()}, "mutated.gguf"), outcomes);
    if (i % 8 == 0) {
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(image.bytes.data()), std::ssize(image.bytes));
      plan(GgufFile::open(path), outcomes);
    }
    slowest = std::max(slowest, Clock::now() - start);
    EXPECT_LT(Clock::now() - start, kLimit);
  }
  fs::remove(path);
  EXPECT_GT(outcomes.planned(), g_files / 20);
  EXPECT_GT(outcomes.kinds(), 20u);
  std::printf("%d files, the slowest in %.1f ms: ", g_files,
              std::chrono::duration<double, std::milli>(slowest).count());
  outcomes.print();
}

}  // namespace
}  // namespace lathe::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--files=", 8) == 0) g_files = std::atoi(argv[i] + 8);
    if (std::strcmp(argv[i], "--messages") == 0) g_messages = true;
  }
  return RUN_ALL_TESTS();
}
