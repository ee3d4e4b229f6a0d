// Owns the reading of kernel names, and the shapes that --all shows.
#include "examples/dump_ptx/kernels.h"

#include <fmt/format.h>

namespace lathe::dump_ptx {

namespace {

// Llama 3.1 8B at batch 1. Where the format is f32, the kernel's format has no meaning or is always
// f32; elsewhere the other formats are variants of the sample.
constexpr const char* kSamples[] = {
    "retile.q4_k.k4096.n14336.w4",
    "embed.q4_k.k4096.n128256.w4",
    "embed.q4_k.k4096.n128256.w4.tiles",
    "rms_norm.f32.k4096.n1.w4.eps1e-5",
    "gemv.q4_k.k4096.n14336.w4",
    "gemv.q4_k.k4096.n14336.w8.r2.b_q8_1",
    "rope.f32.h32.d128.rot128.w4",
    "kv_append.f16.kvh8.d128.w4",
    "kv_append.f32.kvh8.d128.at1024.t8.w16",
    "attention.f16.h32.kvh8.d128.w4.s33.scale8838835e-8",
    "attention.f32.h32.kvh8.d128.at1024.t8.w4.s33.scale8838835e-8",
    "attention_merge.f32.h32.d128.w4.s33",
    "glu.f32.n14336.w4",
    "argmax.f32.n128256.w4.s125",
    "argmax.f32.n128256.w4.s125.masked",
    "argmax_merge.f32.w1.s125",
    "elementwise.f32.n4096.w4.add",
    "layer_norm.f32.k4096.n1.w4.eps1e-5",
    "softmax.f32.k4096.n32.w4",
    "dequantize.q4_k.k4096.n4096.w4",
    "quantize.q8_1.k4096.n1.w4",
    "top_k.f32.n128256.w16.s125",
    "sample.f32.w16.s125",
    "matvec.q4_k.k4096.n4096.w16.bl132.st3.res",
    "attend.f16.h32.kvh8.d128.rot128.w8.s16.scale8838835e-8",
    "norm_tokens.f32.k4096.m512.w8.eps1e-5",
    "matmul.q4_k.k4096.n4096.m512.w8.res",
    "append_tokens.f16.m512.h32.kvh8.d128.rot128.w8.scale8838835e-8",
    "attend_tokens.f16.m512.h32.kvh8.d128.w8",
    "attend_rows.f16.m32.h32.kvh8.d128.w4.bl396.s33",
    "gemm_operand.f16.k4096.n4096.w8",
    "gemm.f16.k4096.n4096.m4096.w8",
};

Result<void> set_fields(KernelKey& key, std::span<const std::string> words) {
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
      return Error{Code::invalid_argument,
                   fmt::format("'{}' is not of the form field=value, as in warps=8", word),
                   {}};
    LATHE_TRY(set_field(key, word.substr(0, equals), word.substr(equals + 1)));
  }
  return {};
}

}  // namespace

Result<KernelKey> kernel_from_words(std::span<const std::string> words) {
  KernelKey key;
  std::size_t used = 1;
  if (words[0].find('.') != std::string::npos) {
    LATHE_ASSIGN(key, parse_key(words[0]));
  } else {
    LATHE_ASSIGN(key.type, kernel_type_by_name(words[0]));
    if (words.size() > 1 && words[1].find('=') == std::string::npos) {
      LATHE_ASSIGN(key.format, format_by_name(words[1]));
      used = 2;
    }
  }
  LATHE_TRY(set_fields(key, words.subspan(used)));
  LATHE_TRY(check_key(key));
  return key;
}

Result<std::vector<KernelKey>> sample_kernels() {
  std::vector<KernelKey> keys;
  for (const char* sample : kSamples) {
    LATHE_ASSIGN(KernelKey key, parse_key(sample));
    LATHE_TRY(check_key(key));
    if (key.format == Format::f32) {
      keys.push_back(key);
      continue;
    }
    for (const FormatRow& format : formats()) {
      key.format = format.format;
      if (check_key(key)) keys.push_back(key);
    }
  }
  return keys;
}

Result<std::vector<KernelKey>> kernels_of_model(const std::string& path, PlanOptions options,
                                                const Target& target) {
  if (options.fusion == Fusion::automatic && target.compute < row(KernelType::matvec).min_compute)
    options.fusion = Fusion::none;
  LATHE_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::open(path));
  LATHE_ASSIGN(const Plan plan, build_plan(*file, options));
  std::vector<KernelKey> keys = plan.distinct_keys();
  if (const Result<PrefillPlan> prefill = build_prefill_plan(plan, multiplies_in_groups(target)))
    for (const KernelKey& key : prefill->plan.distinct_keys()) keys.push_back(key);
  return keys;
}

Result<Program> program_of_model(const std::string& path, PlanOptions options) {
  options.fusion = Fusion::full;
  LATHE_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::open(path));
  LATHE_ASSIGN(const Plan plan, build_plan(*file, options));
  std::vector<KernelKey> keys;
  for (const Step& step : plan.steps) keys.push_back(step.key);
  return make_program(persistent_steps(keys));
}

}  // namespace lathe::dump_ptx
