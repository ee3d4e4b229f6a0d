// Owns what the ggml back end says of itself without a GPU: that it loads, that it lists no device,
// which operations it refuses, and which kernels the others become.
//
// main PATH: of libggml-lathe.so. Exits with the number of things that are wrong.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "lathe/lathe.h"

namespace {

using Refusal = const char* (*)(const ggml_tensor*);
using Kernels = void (*)(const ggml_tensor*, void (*)(void*, const char*), void*);

Refusal refusal;
Kernels kernels;
int wrong = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  ++wrong;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
}

std::vector<std::string> kernels_of(const ggml_tensor* op) {
  std::vector<std::string> names;
  kernels(
      op,
      [](void* user, const char* name) {
        static_cast<std::vector<std::string>*>(user)->push_back(name);
      },
      &names);
  return names;
}

// So many kernels, the first of which begins so; those of Lathe's table are keys that it takes.
void expect_kernels(const ggml_tensor* op, std::size_t count, const std::string& first) {
  const char* reason = refusal(op);
  const std::vector<std::string> names = kernels_of(op);
  const std::string what = std::string(ggml_op_name(op->op)) + " of " +
                           ggml_type_name(op->src[0]->type) + " should be " + first;
  expect(!reason, what + ", but is refused: " + (reason ? reason : ""));
  expect(names.size() == count && names[0].starts_with(first),
         what + ", but is " + (names.empty() ? "nothing" : names[0]) + " and in all " +
             std::to_string(names.size()));
  for (const std::string& name : names) {
    if (name.starts_with("ggml.")) continue;
    lathe_key* key = nullptr;
    expect(lathe_key_parse(name.c_str(), &key) == LATHE_OK, name + " is no key");
    lathe_key_close(key);
  }
}

void expect_refused(const ggml_tensor* op) {
  const std::string what =
      std::string(ggml_op_name(op->op)) + " of " + ggml_type_name(op->src[0]->type);
  expect(refusal(op) != nullptr, what + " should be refused");
  expect(kernels_of(op).empty(), what + " is refused and yet has kernels");
}

void check_products(ggml_context* c) {
  const auto weights = [&](ggml_type type, int length, int rows) {
    return ggml_new_tensor_2d(c, type, length, rows);
  };
  const auto columns = [&](int length, int count) {
    return ggml_new_tensor_2d(c, GGML_TYPE_F32, length, count);
  };
  for (const auto [type, name] :
       std::vector<std::pair<ggml_type, const char*>>{{GGML_TYPE_F32, "f32"},
                                                      {GGML_TYPE_F16, "f16"},
                                                      {GGML_TYPE_BF16, "bf16"},
                                                      {GGML_TYPE_Q4_0, "q4_0"},
                                                      {GGML_TYPE_Q4_1, "q4_1"},
                                                      {GGML_TYPE_Q5_0, "q5_0"},
                                                      {GGML_TYPE_Q5_1, "q5_1"},
                                                      {GGML_TYPE_Q8_0, "q8_0"},
                                                      {GGML_TYPE_Q2_K, "q2_k"},
                                                      {GGML_TYPE_Q3_K, "q3_k"},
                                                      {GGML_TYPE_Q4_K, "q4_k"},
                                                      {GGML_TYPE_Q5_K, "q5_k"},
                                                      {GGML_TYPE_Q6_K, "q6_k"},
                                                      {GGML_TYPE_IQ4_NL, "iq4_nl"},
                                                      {GGML_TYPE_IQ4_XS, "iq4_xs"},
                                                      {GGML_TYPE_MXFP4, "mxfp4"}}) {
    expect_kernels(ggml_mul_mat(c, weights(type, 4096, 14336), columns(4096, 1)), 1,
                   std::string("gemv.") + name + ".k4096.n14336.w8.r2");
    expect_kernels(ggml_mul_mat(c, weights(type, 256, 16), columns(256, 1)), 1,
                   std::string("gemv.") + name + ".k256.n16.w4");
    if (!ggml_is_quantized(type)) continue;
    expect_kernels(ggml_mul_mat(c, weights(type, 256, 16), columns(256, 3)), 3,
                   std::string("gemv.") + name + ".k256.n16.w4");
    // 4096 rows at a time fit into scratch: four times unpacked, four products.
    expect_kernels(ggml_mul_mat(c, weights(type, 4096, 14336), columns(4096, 64)), 8,
                   std::string("dequantize.") + name + ".k4096.n4096");
    expect_kernels(
        ggml_get_rows(c, weights(type, 256, 16), ggml_new_tensor_1d(c, GGML_TYPE_I32, 5)), 1,
        std::string("embed.") + name + ".k256.n16.m5");
  }
  // Columns that do not start at multiples of 16 bytes are not gemv's.
  expect_kernels(ggml_mul_mat(c, weights(GGML_TYPE_Q8_0, 256, 15), columns(256, 2)), 2,
                 "dequantize.q8_0.k256.n15");
  // Keys of a KV cache, permuted, against the queries of one token.
  ggml_tensor* keys = ggml_new_tensor_3d(c, GGML_TYPE_F16, 64, 4, 256);
  ggml_tensor* queries = ggml_new_tensor_3d(c, GGML_TYPE_F32, 64, 1, 8);
  expect_kernels(ggml_mul_mat(c, ggml_permute(c, keys, 0, 2, 1, 3), queries), 1, "ggml.dot.");
  ggml_tensor* many = ggml_new_tensor_3d(c, GGML_TYPE_F32, 64, 9, 8);
  ggml_tensor* product = ggml_mul_mat(c, ggml_permute(c, keys, 0, 2, 1, 3), many);
  expect_kernels(product, 1, "ggml.rounded_product.");
  ggml_mul_mat_set_prec(product, GGML_PREC_F32);
  expect_kernels(product, 1, "ggml.product.");
  expect_refused(ggml_mul_mat(c, weights(GGML_TYPE_IQ2_XXS, 256, 16), columns(256, 1)));
  expect_refused(ggml_mul_mat(c, ggml_view_2d(c, weights(GGML_TYPE_Q4_0, 256, 16), 128, 16, 144, 0),
                              columns(128, 1)));
}

void check_others(ggml_context* c) {
  ggml_tensor* x = ggml_new_tensor_2d(c, GGML_TYPE_F32, 96, 4);
  ggml_tensor* i32 = ggml_new_tensor_1d(c, GGML_TYPE_I32, 4);
  expect_kernels(ggml_rms_norm(c, x, 1e-5f), 1, "ggml.norm_rows.");
  expect_kernels(ggml_add(c, x, ggml_new_tensor_1d(c, GGML_TYPE_F32, 96)), 1, "ggml.binary.");
  expect_kernels(ggml_silu(c, x), 1, "ggml.map.");
  expect_kernels(ggml_swiglu(c, x), 1, "ggml.glu.");
  expect_kernels(ggml_soft_max(c, x), 1, "ggml.soft_max.");
  expect_kernels(ggml_argmax(c, x), 1, "ggml.argmax.");
  expect_kernels(ggml_cpy(c, x, ggml_new_tensor_2d(c, GGML_TYPE_F16, 96, 4)), 1,
                 "ggml.copy_elements.");
  expect_refused(ggml_cpy(c, x, ggml_new_tensor_2d(c, GGML_TYPE_Q8_0, 96, 4)));
  ggml_tensor* heads = ggml_new_tensor_3d(c, GGML_TYPE_F32, 64, 8, 4);
  expect_kernels(ggml_rope(c, heads, i32, 64, GGML_ROPE_TYPE_NEOX), 1, "ggml.rope.");
  expect_refused(
      ggml_rope(c, heads, ggml_new_tensor_1d(c, GGML_TYPE_I32, 16), 32, GGML_ROPE_TYPE_MROPE));
  // What extrapolates to no longer context is one kernel for all of them, and for one of no length.
  const auto rope_of_context = [&](int length, float extrapolation) {
    return kernels_of(ggml_rope_ext(c, heads, i32, nullptr, 64, GGML_ROPE_TYPE_NEOX, length, 10000,
                                    1, extrapolation, 1, 32, 1))
        .at(0);
  };
  expect(rope_of_context(0, 0) == rope_of_context(4096, 0), "rope looks at a context's length");
  expect(rope_of_context(2048, 1) != rope_of_context(4096, 1), "YaRN overlooks a context's length");
  // Two operations that differ in a constant alone are two kernels.
  expect(kernels_of(ggml_scale(c, x, 2))[0] != kernels_of(ggml_scale(c, x, 3))[0],
         "scales by 2 and by 3 are one kernel");
  expect(kernels_of(ggml_scale(c, x, 2))[0] == kernels_of(ggml_scale(c, x, 2))[0],
         "the same scale is two kernels");
  expect(!refusal(ggml_reshape_1d(c, x, 384)) && kernels_of(ggml_reshape_1d(c, x, 384)).empty(),
         "reshape should be no work");
  expect_refused(ggml_cumsum(c, x));
}

}  // namespace

int main(int, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW);
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto score = reinterpret_cast<int (*)()>(dlsym(library, "ggml_backend_score"));
  const auto init = reinterpret_cast<ggml_backend_reg_t (*)()>(dlsym(library, "ggml_backend_init"));
  if (!score || !init) return 1;
  ggml_backend_reg_t registry = init();
  expect(std::string(ggml_backend_reg_name(registry)) == "Lathe", "the name is not Lathe");
  expect((score() > 0) == (ggml_backend_reg_dev_count(registry) > 0),
         "the score is not 0 where there is no device, or 0 where there is one");
  expect((ggml_backend_load(arguments[1]) != nullptr) == (score() > 0),
         "ggml loads it where there is no GPU, or not where there is one");
  refusal = reinterpret_cast<Refusal>(ggml_backend_reg_get_proc_address(registry, "lathe_refusal"));
  kernels = reinterpret_cast<Kernels>(ggml_backend_reg_get_proc_address(registry, "lathe_kernels"));
  if (!refusal || !kernels) return 1;
  const ggml_context_ptr context(
      ggml_init({.mem_size = 4 << 20, .mem_buffer = nullptr, .no_alloc = true}));
  check_products(context.get());
  check_others(context.get());
  return wrong;
}
