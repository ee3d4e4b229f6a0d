// Owns the tests of the LLVM route: the PTX of every kernel for every target, and what
// liblathe_llvm.so does as a library. LATHE_LLVM_LIBRARY is its path.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "codegen/dynamic_library.h"
#include "codegen/llvm/lathe_llvm.h"
#include "lathe/codegen/emit.h"
#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/ptx_lint.h"
#include "tests/codegen/ptx_text.h"
#include "tests/support/seed.h"

namespace lathe {
namespace {

constexpr std::array kTargets = {"sm_80", "sm_89", "sm_100", "sm_120"};

const Compilers& compilers() {
  static const Compilers instance(CompilerPaths{.nvrtc = {}, .llvm = LATHE_LLVM_LIBRARY});
  return instance;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (char c : text) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  }
  return lines;
}

// What must not stand in a kernel's PTX: each line with local memory, a call or an access whose
// address space the compiler did not find out. matvec's streams of tiles keep their addresses in
// shared memory, where no compiler follows them.
std::string unwanted(const std::string& ptx, const KernelKey& key) {
  static const std::regex local(R"(\.local\b|^\s*(@!?%p\d+ )?call\b|\.func\b)"),
      load(R"(\bld\.(volatile\.)?(v[248]\.)?[bfsu]\d+\b)"),
      store(R"(\bst\.(volatile\.)?(v[248]\.)?[bfsu]\d+\b)");
  const bool generic = key.type == KernelType::matvec;
  std::string out;
  for (const std::string& line : lines_of(ptx)) {
    if (line.starts_with("//")) continue;
    if (std::regex_search(line, local) || std::regex_search(line, store) ||
        (!generic && std::regex_search(line, load)))
      out += line + "\n";
  }
  return out;
}

std::vector<std::string> entries(const std::string& ptx) {
  static const std::regex pattern(R"(\.visible \.entry (\w+)\()");
  std::vector<std::string> out;
  for (std::sregex_iterator at(ptx.begin(), ptx.end(), pattern), end; at != end; ++at)
    out.push_back((*at)[1]);
  return out;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

class EveryKernel : public ::testing::TestWithParam<testing::Family> {};

// For sm_90a and one of the others: the seed chooses which, so that each has its turn.
TEST_P(EveryKernel, IsOneEntryOverPointers) {
  const std::uint64_t seed = testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  auto turn = static_cast<std::size_t>(GetParam().format) + seed % kTargets.size();
  for (const KernelKey& key : testing::representative_keys(GetParam())) {
    for (const char* name : {"sm_90a", kTargets[turn++ % kTargets.size()]}) {
      SCOPED_TRACE(key.text() + " for " + name);
      const Target target = *parse_target(name);
      if (!target_covers(key, target)) continue;
      const Result<Ptx> ptx = emit(key, target, Route::llvm, compilers());
      ASSERT_TRUE(ptx) << ptx.error().text();
      EXPECT_EQ(unwanted(ptx->text, key), "");
      EXPECT_EQ(testing::ptx_faults(*ptx, key), "");
      EXPECT_EQ(
          testing::ptx_faults(testing::for_sm_120(*ptx), key).find("an unconditional branch back"),
          std::string::npos);
      EXPECT_EQ(testing::inexact_faults(ptx->text, key), "");
      EXPECT_EQ(entries(ptx->text), std::vector{key.symbol()});
      EXPECT_EQ(count(ptx->text, ".visible"), 1u);
      EXPECT_EQ(count(ptx->text, "\t.param .u64"), row(key.type).params(key).size());
      EXPECT_EQ(count(ptx->text, "\t.param"), row(key.type).params(key).size());
      EXPECT_NE(ptx->text.find("\n.target " + target.name() + "\n"), std::string::npos);
      EXPECT_NE(ptx->text.find("\n.version " + ptx->target.ptx_version() + "\n"),
                std::string::npos);
      const std::regex bounds("\n\\.maxntid " + std::to_string(ptx->geometry.threads) +
                              "(, 1, 1)?\n\\.minnctapersm " +
                              std::to_string(ptx->geometry.resident) + "\n");
      EXPECT_TRUE(std::regex_search(ptx->text, bounds));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LlvmRoute, EveryKernel, ::testing::ValuesIn(testing::families()),
                         [](const auto& info) { return info.param.name(); });

TEST(LlvmRoute, RaisesThePtxVersionButDoesNotLowerItsTargets) {
  const KernelKey key{.type = KernelType::glu, .n = 1024};
  const auto version = [&](int compute, bool accelerated, int ptx) {
    const Result<Ptx> result = emit(key, {compute, accelerated, ptx}, Route::llvm, compilers());
    if (!result) return result.error().text();
    const std::size_t at = result->text.find(".version ");
    return result->text.substr(at, result->text.find('\n', at) - at);
  };
  EXPECT_EQ(version(90, true, 70), ".version 8.0");
  EXPECT_EQ(version(90, true, 85), ".version 8.5");
  EXPECT_EQ(version(80, false, 70), ".version 7.0");
  EXPECT_EQ(version(80, false, 90), ".version 9.0");
  EXPECT_EQ(version(120, false, 87), ".version 8.7");
}

TEST(LlvmRoute, IsTheSameTextFromEveryThread) {
  const KernelKey key{.format = Format::q6_k, .k = 2048, .n = 64, .rows = 2};
  const Target target = *parse_target("sm_90a");
  std::array<std::string, 8> texts;
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] {
      const Result<Ptx> ptx = emit(key, target, Route::llvm, compilers());
      text = ptx ? ptx->text : ptx.error().text();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(texts[0].find(".entry"), std::string::npos) << texts[0];
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

// The library's own interface, with a request for glu_silu that tests spoil.
class Interface : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> names = {LATHE_LLVM_LIBRARY};
    Result<DynamicLibrary> library = DynamicLibrary::open(names);
    ASSERT_TRUE(library) << library.error().text();
    library_.emplace(std::move(*library));
    ASSERT_TRUE(library_->bind(emit_, "lathe_llvm_emit"));
  }

  // "0 <PTX>", or the status and the reason.
  std::string run() {
    std::pair<std::string, int> reply;
    const auto keep = [](void* user, const char* text, unsigned long bytes) {
      auto& [said, replies] = *static_cast<std::pair<std::string, int>*>(user);
      said.assign(text, bytes);
      ++replies;
    };
    const int status = emit_(&request_, keep, &reply);
    EXPECT_EQ(reply.second, 1);
    return (status == 0 ? "0 " : "failed: ") + reply.first;
  }

  void expect_works() { EXPECT_TRUE(run().starts_with("0 .version 8.0\n")) << run(); }

  std::optional<DynamicLibrary> library_;
  decltype(&lathe_llvm_emit) emit_ = nullptr;
  std::array<LatheLlvmParameter, 3> parameters_ = {{
      {"gate", LATHE_LLVM_READONLY, 16},
      {"up", LATHE_LLVM_READONLY, 16},
      {"y", 0, 16},
  }};
  std::array<LatheLlvmArgument, 5> arguments_ = {{
      {LATHE_LLVM_PARAMETER, 0, 0},
      {LATHE_LLVM_PARAMETER, 1, 0},
      {LATHE_LLVM_PARAMETER, 2, 0},
      {LATHE_LLVM_INTEGER, 1024, 0},
      {LATHE_LLVM_INTEGER, 4, 0},
  }};
  LatheLlvmRequest request_ = {
      .struct_size = sizeof(LatheLlvmRequest),
      .function = "glu_silu",
      .entry = "glu",
      .parameters = parameters_.data(),
      .parameter_count = 3,
      .arguments = arguments_.data(),
      .argument_count = 5,
      .threads = 128,
      .resident = 1,
      .compute = 90,
      .accelerated = 1,
      .ptx = 80,
      .waits = 0,
  };
};

TEST_F(Interface, RefusesWithAReasonAndGoesOn) {
  expect_works();
  request_.function = "no_such_op";
  EXPECT_EQ(run(), "failed: the device code has no function 'no_such_op'");
  request_.function = "glu_silu";
  expect_works();
  request_.argument_count = 4;
  EXPECT_EQ(run(), "failed: glu_silu takes 5 arguments, not 4");
  request_.argument_count = 5;
  arguments_[1].integer = 3;
  EXPECT_EQ(run(), "failed: argument 1 does not fit glu_silu");
  arguments_[1] = {LATHE_LLVM_INTEGER, 1, 0};
  EXPECT_EQ(run(), "failed: argument 1 does not fit glu_silu");
  arguments_[1] = {LATHE_LLVM_PARAMETER, 1, 0};
  arguments_[3].kind = LATHE_LLVM_REAL;
  EXPECT_EQ(run(), "failed: argument 3 does not fit glu_silu");
  arguments_[3].kind = LATHE_LLVM_INTEGER;
  parameters_[2].name = nullptr;
  EXPECT_EQ(run(), "failed: parameter 2 has no name");
  parameters_[2].name = "y";
  parameters_[0].alignment = 12;
  EXPECT_EQ(run(), "failed: the alignment of parameter 0 is not a power of two");
  parameters_[0].alignment = 16;
  request_.compute = 50;
  request_.accelerated = 0;
  EXPECT_EQ(run(), "failed: the device code is not for sm_50");
  request_.compute = 90;
  request_.accelerated = 1;
  request_.struct_size = 8;
  EXPECT_EQ(run(), "failed: the request was made for another version of liblathe_llvm.so");
  request_.struct_size = sizeof(LatheLlvmRequest);
  expect_works();
}

TEST_F(Interface, TakesAnEntryNamedLikeTheFunction) {
  request_.entry = "glu_silu";
  EXPECT_EQ(entries(run()), std::vector<std::string>{"glu_silu"});
}

TEST_F(Interface, NamesTheParameters) {
  const std::string ptx = run();
  for (const char* name : {"gate", "up", "y"})
    EXPECT_EQ(count(ptx, std::string("[") + name + "]"), 1u) << ptx;
  EXPECT_EQ(count(ptx, "_param_"), 0u);
}

TEST_F(Interface, ReadsThroughTheCacheOnlyWhereNothingIsWritten) {
  EXPECT_EQ(count(run(), "ld.global.nc"), 0u);
  parameters_[0].flags |= LATHE_LLVM_NOALIAS;
  EXPECT_EQ(count(run(), "ld.global.nc"), 1u);
}

// The defined symbols of the library's dynamic table.
std::set<std::string> exported_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const auto at = [&](std::uint64_t offset) { return bytes.data() + offset; };
  std::set<std::string> out;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(at(0));
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(at(header->e_shoff));
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_DYNSYM) continue;
    const char* names = at(sections[sections[s].sh_link].sh_offset);
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(at(sections[s].sh_offset));
    for (std::size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i)
      if (symbols[i].st_shndx != SHN_UNDEF) out.insert(names + symbols[i].st_name);
  }
  return out;
}

TEST(LlvmRoute, LibraryExportsItsTwoFunctions) {
  EXPECT_EQ(exported_symbols(LATHE_LLVM_LIBRARY),
            (std::set<std::string>{"lathe_llvm_emit", "lathe_llvm_version"}));
}

}  // namespace
}  // namespace lathe
