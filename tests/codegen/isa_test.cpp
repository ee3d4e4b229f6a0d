// Owns the proof that isa/device*.h and isa/host*.h are twins: the kernels of isa_ops.h on the GPU,
// through NVRTC, against the emulator, bit for bit. NaNs are alike whatever their payload.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codegen/device_sources.h"
#include "codegen/routes.h"
#include "emulation/emulator.h"
#include "isa_ops_text.h"
#include "tests/codegen/isa_ops.h"
#include "tests/support/compilers.h"
#include "tests/support/gpu.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

constexpr int kThreads = 128;
constexpr Geometry kGrid = {
    .grid_x = 2, .grid_y = 8, .threads = kThreads, .shared_bytes = kThreads * 4};
constexpr std::size_t kWords = 2 * 8 * kThreads;

using Words = std::vector<std::uint32_t>;
using HostOp = void (*)(const dev::u32*, const dev::u32*, const dev::u32*, dev::u32*, int);

struct IsaOp {
  const char* name;
  HostOp host;
};

#define LATHE_ISA_ENTRY(name) {#name, &dev::isa_##name},
constexpr IsaOp kOps[] = {LATHE_ISA_OPS(LATHE_ISA_ENTRY)};
#undef LATHE_ISA_ENTRY

// Random bits, floats of sensible size, and what rounding and range make special.
Words input(verification::Random& random) {
  constexpr std::uint32_t kSpecial[] = {
      0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000,
      0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f000000,
      0x3fc00000, 0x40200000, 0x4b000000, 0x4b000001, 0x477fe000, 0x477fefff, 0x477ff000,
      0x38800000, 0x387fe000, 0x33000000, 0x33000001, 0x33800000, 0x0000ffff, 0xffffffff,
      0x42b17218, 0xc2b00000, 0xc2ae0000, 0x00003c01, 0x00007bff, 0x000003ff};
  Words words(kWords);
  for (std::uint32_t& word : words) {
    switch (random.below(4)) {
      case 0:
        word = kSpecial[random.below(static_cast<int>(std::size(kSpecial)))];
        break;
      case 1:
        word = static_cast<std::uint32_t>(random.bits());
        break;
      default:
        word = std::bit_cast<std::uint32_t>(random.normal() * random.uniform(0, 20));
    }
  }
  return words;
}

bool same(std::uint32_t a, std::uint32_t b, bool floats) {
  if (a == b) return true;
  return floats && std::isnan(std::bit_cast<float>(a)) && std::isnan(std::bit_cast<float>(b));
}

// Whether the words are no floats: then a NaN is a word like any other.
bool moves_bits(const std::string& name) {
  for (const char* part : {"byte_permute", "masked_or", "funnel_right", "stream", "shuffle",
                           "barrier", "ballot", "dot4", "mma", "relaxed", "atomic", "copy",
                           "dependents", "half2", "transposed", "columns", "e4m3", "f64"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

// Compiles one kernel of isa_ops.h.
Result<std::string> isa_ptx(const IsaOp& op, const Target& target) {
  LATHE_ASSIGN(const Nvrtc* nvrtc, load_nvrtc(compilers().state()));
  const std::string source =
      "#include \"isa_ops.h\"\n"
      "extern \"C\" __global__ void isa_kernel(const unsigned* a, const unsigned* b, "
      "const unsigned* c, unsigned* out) {\n  lathe::dev::isa_" +
      std::string(op.name) + "(a, b, c, out, " + std::to_string(kThreads) + ");\n}\n";
  std::vector<const char*> texts = {kIsaOpsText}, names = {"isa_ops.h"};
  for (const SourceFile& file : device_sources()) {
    if (!file.name.ends_with(".h")) continue;
    texts.push_back(file.text.data());
    names.push_back(file.name.data());
  }
  const std::string arch =
      "-arch=compute_" + std::to_string(target.compute) + (target.accelerated ? "a" : "");
  const char* options[] = {arch.c_str(), "--std=c++20", "-fmad=false"};
  void* program = nullptr;
  nvrtc->create_program(&program, source.c_str(), "isa.cu", static_cast<int>(texts.size()),
                        texts.data(), names.data());
  const int status = nvrtc->compile_program(program, 3, options);
  std::size_t size = 0;
  (status == 0 ? nvrtc->get_ptx_size : nvrtc->get_log_size)(program, &size);
  std::string text(size, '\0');
  (status == 0 ? nvrtc->get_ptx : nvrtc->get_log)(program, text.data());
  nvrtc->destroy_program(&program);
  if (status != 0) return Error{Code::compile, text, {}};
  return text;
}

Words emulated(const IsaOp& op, const Words (&in)[3], std::uint64_t seed) {
  Words out(kWords, 0xdeadbeef);
  const auto body = [&] {
    op.host(in[0].data(), in[1].data(), in[2].data(), out.data(), kThreads);
  };
  const Result<void> ran = emulation::launch(op.name, kGrid, body, seed);
  EXPECT_TRUE(ran) << ran.error().text();
  return out;
}

Result<Words> on_gpu(Gpu& gpu, const std::string& ptx, const Words (&in)[3]) {
  std::vector<GpuBuffer> buffers;
  std::vector<std::uint64_t> pointers;
  Words out(kWords, 0xdeadbeef);
  for (const Words* words : {&in[0], &in[1], &in[2], static_cast<const Words*>(&out)}) {
    LATHE_ASSIGN(GpuBuffer buffer,
                 GpuBuffer::make(gpu, std::as_bytes(std::span(*words)), 16, Placement::end));
    pointers.push_back(buffer.address());
    buffers.push_back(std::move(buffer));
  }
  LATHE_TRY(gpu.run(ptx, "isa_kernel", kGrid, pointers));
  LATHE_ASSIGN(const std::vector<std::byte> bytes, buffers.back().contents());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class IsaTest : public ::testing::TestWithParam<IsaOp> {};

INSTANTIATE_TEST_SUITE_P(Functions, IsaTest, ::testing::ValuesIn(kOps),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(IsaTest, GpuAndHostAgree) {
  const Result<Gpu*> gpu = Gpu::first();
  if (!gpu) GTEST_SKIP() << gpu.error().message;
  if (const auto there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  const IsaOp& op = GetParam();
  const Result<std::string> ptx = isa_ptx(op, (*gpu)->target());
  ASSERT_TRUE(ptx) << ptx.error().text();
  const std::string name = op.name;
  if ((name == "bulk_copy" || name == "hand_over" || name == "dependents") &&
      (*gpu)->target().compute < 90)
    GTEST_SKIP() << "it came with sm_90";
  if (name.find("e4m3") != std::string::npos && (*gpu)->target().compute < 89)
    GTEST_SKIP() << "it came with sm_89";
  const bool bits = moves_bits(name);
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t seed = verification::fresh_seed();
    verification::Random random(seed);
    const Words in[3] = {input(random), input(random), input(random)};
    const Result<Words> device = on_gpu(**gpu, *ptx, in);
    ASSERT_TRUE(device) << device.error().text();
    const Words host = emulated(op, in, seed);
    for (std::size_t i = 0; i < kWords; ++i)
      ASSERT_TRUE(same((*device)[i], host[i], !bits))
          << std::hex << "words " << in[0][i] << " " << in[1][i] << " " << in[2][i] << ": GPU "
          << (*device)[i] << ", host " << host[i] << ", seed " << seed;
  }
}

}  // namespace
}  // namespace lathe::testing
