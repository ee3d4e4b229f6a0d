// Owns the tests that hold every row of the kernel table to itself: its functions agree with one
// another and with the op they call.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "codegen/kernels/matvec.h"
#include "emulation/op_registry.h"
#include "tests/codegen/drawn_keys.h"
#include "tests/codegen/kernel_cases.h"

namespace lathe {
namespace {

using testing::Family;
using testing::KernelCase;

class TableTest : public ::testing::TestWithParam<Family> {
 protected:
  void cases_are_valid();
  void geometry_can_be_launched();
  void parameters_are_stated();
  void call_matches_the_op();
  void cost_is_what_the_parameters_say();

  const std::vector<KernelCase> cases_ = testing::kernel_cases(GetParam());
  const KernelRow& kernel_ = row(GetParam().type);
};

INSTANTIATE_TEST_SUITE_P(Kernels, TableTest, ::testing::ValuesIn(testing::families()),
                         [](const auto& info) { return info.param.name(); });

void TableTest::cases_are_valid() {
  ASSERT_FALSE(cases_.empty());
  for (const KernelCase& c : cases_) {
    const Result<void> valid = check_key(c.key);
    EXPECT_TRUE(valid) << valid.error().text();
  }
  for (const KernelKey& key : testing::representative_keys(GetParam())) EXPECT_TRUE(check_key(key));
}

void TableTest::geometry_can_be_launched() {
  for (const KernelCase& c : cases_) {
    const Geometry g = kernel_.geometry(c.key);
    EXPECT_EQ(g.threads, static_cast<unsigned>(c.key.warps * 32)) << c.text();
    EXPECT_LE(g.threads, 1024u);
    EXPECT_GE(g.grid_x, 1u);
    EXPECT_GE(g.grid_y, 1u);
    EXPECT_LE(g.grid_y, 65535u);
    // What sm_89 and sm_120 offer; matvec takes what there is, and plans ask the device for it.
    // So do the kernels of a chunk.
    const bool fused = c.key.type == KernelType::matvec || c.count > 0 || c.key.grouped;
    const int most = fused ? kMostSharedBytes : 100 * 1024;
    EXPECT_LE(g.shared_bytes, static_cast<unsigned>(most)) << c.text();
    EXPECT_EQ(g.shared_bytes % 4, 0u);
    // More rows than any vocabulary has: they do not go where a grid has 65535.
    KernelKey large = c.key;
    large.n = 1 << 20;
    if (c.key.n > 0 && check_key(large)) {
      EXPECT_LE(kernel_.geometry(large).grid_y, 65535u) << large.text();
    }
  }
}

void TableTest::parameters_are_stated() {
  for (const KernelCase& c : cases_) {
    const std::vector<Param> params = kernel_.params(c.key);
    std::set<std::string> names;
    int outputs = 0;
    for (const Param& param : params) {
      EXPECT_TRUE(names.insert(param.name).second) << param.name;
      EXPECT_GT(param.bytes, 0) << c.text() << " " << param.name;
      EXPECT_TRUE(param.alignment == 4 || param.alignment == 16);
      EXPECT_EQ(param.per_position, param.element == Element::kv);
      EXPECT_EQ(param.per_page, std::string_view("pages") == param.name);
      EXPECT_TRUE(!param.may_alias || param.access == Access::read);
      const bool counts = std::string_view("counters") == param.name;
      outputs += param.access != Access::read && !param.scratch && !counts;
    }
    const bool two = c.key.type == KernelType::kv_append || c.key.joined;
    const bool three = c.key.type == KernelType::append_tokens || c.key.type == KernelType::attend;
    EXPECT_EQ(outputs, three ? 3 : two ? 2 : 1) << c.text();
    if (c.alias >= 0) {
      EXPECT_TRUE(params[static_cast<std::size_t>(c.alias)].may_alias) << c.text();
    }
  }
}

void TableTest::call_matches_the_op() {
  for (const KernelCase& c : cases_) {
    const OpCall call = kernel_.call(c.key);
    const std::size_t count = kernel_.params(c.key).size();
    const std::vector<void*> pointers(count);
    const auto values = emulation::op_values(call, pointers);
    ASSERT_TRUE(values) << values.error().text();
    std::set<int> used;
    for (const OpArgument& argument : call.arguments)
      if (argument.kind == OpArgument::Kind::parameter) used.insert(argument.integer);
    EXPECT_EQ(used.size(), count) << c.text() << ": a parameter that the op does not get";
  }
}

void TableTest::cost_is_what_the_parameters_say() {
  for (const KernelCase& c : cases_) {
    const Cost cost = kernel_.cost(c.key);
    EXPECT_GT(cost.bytes_read, 0);
    EXPECT_GT(cost.bytes_written, 0);
    EXPECT_GT(cost.operations, 0);
    std::int64_t readable = 0, writable = 0;
    for (const Param& param : kernel_.params(c.key)) {
      if (param.access != Access::write) readable += param.bytes;
      if (param.access != Access::read) writable += param.bytes;
    }
    EXPECT_LE(cost.bytes_read, readable) << c.text();
    EXPECT_LE(cost.bytes_written, writable) << c.text();
  }
}

// One test for all of it: cases take longer to make than to look at.
TEST_P(TableTest, AgreesWithItselfAndItsOp) {
  cases_are_valid();
  geometry_can_be_launched();
  parameters_are_stated();
  call_matches_the_op();
  cost_is_what_the_parameters_say();
}

TEST(KernelTable, RowsAreComplete) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kernel_table().size(); ++i) {
    const KernelRow& kernel = kernel_table()[i];
    EXPECT_EQ(static_cast<std::size_t>(kernel.type), i);
    EXPECT_EQ(&row(kernel.type), &kernel);
    EXPECT_TRUE(names.insert(kernel.name).second);
    const Result<KernelType> type = kernel_type_by_name(kernel.name);
    ASSERT_TRUE(type);
    EXPECT_EQ(*type, kernel.type);
    EXPECT_STRNE(kernel.summary, "");
    EXPECT_STRNE(kernel.bound_reason, "");
    EXPECT_GE(kernel.bound, 0);
    // Of matvec for a vector that one value dwarfs; for those of models it is 3e-5.
    // What goes to the matrix units as f16 is known to 11 bits, as bf16 to 8.
    const bool halves = kernel.type >= KernelType::norm_tokens;
    EXPECT_LE(kernel.bound, kernel.type == KernelType::gemm     ? 4e-3
                            : halves                            ? 2e-3
                            : kernel.type == KernelType::matvec ? 2e-4
                                                                : 5e-5)
        << kernel.name;
    EXPECT_TRUE(kernel.min_compute == 0 || *kernel.min_compute_reason) << kernel.name;
  }
  EXPECT_FALSE(kernel_type_by_name("gem"));
}

// Otherwise one kernel would have many keys, and be built for each.
TEST(KernelTable, FieldsThatAFamilyDoesNotUseAreRefused) {
  for (const KernelRow& kernel : kernel_table()) {
    std::set<std::string> used;
    std::istringstream names(kernel.fields);
    for (std::string name; names >> name;) EXPECT_TRUE(used.insert(name).second) << name;
    const std::set<std::string> listed = used;
    for (const Family& family : testing::families()) {
      if (family.type != kernel.type) continue;
      for (const KernelCase& c : testing::kernel_cases(family))
        for (const KeyField& field : key_fields()) {
          if (listed.contains(field.name)) {
            if (!is_default(c.key, field)) used.erase(field.name);
            continue;
          }
          KernelKey key = c.key;
          testing::set_another(key, field);
          const Result<void> valid = check_key(key);
          ASSERT_FALSE(valid) << key.text();
          EXPECT_NE(valid.error().message.find(field.name), std::string::npos) << key.text();
        }
    }
    for (const std::string& name : used) ADD_FAILURE() << kernel.name << ": no case sets " << name;
  }
}

// Otherwise one kernel would have a key for each format that it does not look at.
TEST(KernelTable, FormatsThatAFamilyDoesNotLookAtAreRefused) {
  const std::vector<Family>& all = testing::families();
  for (const KernelRow& kernel : kernel_table()) {
    for (const Family& family : all) {
      if (family.type != kernel.type) continue;
      EXPECT_TRUE(kernel.covers(family.format)) << family.name();
      KernelKey key = testing::kernel_cases(family).front().key;
      // Halves of two kinds are moved alike, but known by their matrix.
      const auto kernel_of = [&kernel](const KernelKey& of) {
        std::vector<Format> read;
        for (const Param& param : kernel.params(of)) read.push_back(param.matrix.format);
        return std::pair(kernel.call(of), read);
      };
      const auto wanted = kernel_of(key);
      for (const Family& other : all) {
        if (other.type != kernel.type || other.format == family.format) continue;
        key.format = other.format;
        // Of one shape in two formats, where both have it.
        if (!check_key(key)) continue;
        EXPECT_FALSE(kernel_of(key) == wanted) << key.text();
      }
    }
    for (const FormatRow& format : formats()) {
      if (kernel.covers(format.format)) continue;
      const KernelKey key = testing::kernel_cases({kernel.type, format.format}).front().key;
      const Result<void> valid = check_key(key);
      ASSERT_FALSE(valid) << key.text();
      EXPECT_NE(valid.error().message.find(format.name), std::string::npos);
      EXPECT_NE(valid.error().message.find(kernel.formats), std::string::npos);
    }
  }
}

TEST(KernelTable, EveryTypeHasAFamily) {
  std::set<KernelType> types;
  for (const Family& family : testing::families()) types.insert(family.type);
  EXPECT_EQ(types.size(), kernel_table().size());
}

TEST(KernelTable, EveryOpIsCalledBySomeKernel) {
  std::set<std::string> called;
  for (const Family& family : testing::families())
    for (const KernelCase& c : testing::kernel_cases(family))
      called.insert(row(c.key.type).call(c.key).function);
  for (const emulation::HostOp& op : emulation::host_ops())
    EXPECT_TRUE(called.contains(op.name)) << op.name << " is no kernel's op";
}

// Each edit of a valid key must be refused, with the field's name in the message.
TEST(KernelTable, ChecksNameTheField) {
  const struct {
    const char* key;
    const char* field;
  } refused[] = {
      {"gemv.q4_k.k100.n8", "k"},
      {"gemv.q4_k.n8", "k"},
      {"gemv.q8_0.k64", "n"},
      {"gemv.q8_0.k64.n8.w0", "warps"},
      {"gemv.q8_0.k64.n8.w17", "warps"},
      {"gemv.q8_0.k64.n8.r9", "rows"},
      {"gemv.q8_0.k64.n8.tiles", "layout"},
      {"embed.q6_k.k128.n8", "k"},
      {"embed.f32.k128.n8.tiles", "f32"},
      {"retile.f32.k128.n8", "f32"},
      {"retile.q4_k.k256", "n"},
      {"retile.q4_k.k256.n8.w33", "warps"},
      {"retile.q4_k.k256.n8.tiles", "layout"},
      {"rms_norm.f32.n1.w4", "k"},
      {"rms_norm.f16.k64.n1", "f32"},
      {"rms_norm.f32.k64.n1.eps-1", "epsilon"},
      {"rope.f32.h4.d64.rot63", "rotary"},
      {"rope.f32.h4.d64.rot66", "rotary"},
      {"kv_append.q8_0.kvh1.d64", "q8_0"},
      {"kv_append.f16.d64", "kv_heads"},
      {"attention.f16.h7.kvh2.d64", "heads"},
      {"attention.f16.h8.kvh2.d63", "head_dim"},
      {"attention.f16.h8.kvh2.d258", "head_dim"},
      {"attention.bf16.h8.kvh2.d64", "bf16"},
      {"attention_merge.f32.h8.d64.s0", "splits"},
      {"glu.f32.w4", "n"},
      {"matvec.q4_k.k256.n8.nb8.b_q4_k.w4.bl1.gated.norm.relu", "activation"},
      {"elementwise.f32.add", "n"},
      {"elementwise.f32.n8.k3.add", "k"},
      {"elementwise.f32.n8.k8", "k"},
      {"elementwise.f32.n8.bias", "operation"},
      {"elementwise.f32.n8.add.relu", "operation"},
      {"layer_norm.f32.n4.w4", "k"},
      {"layer_norm.q4_0.k64.n1", "f32"},
      {"softmax.f32.k64.n4.scale-1", "scale"},
      {"softmax.f32.k64", "n"},
      {"gemv.q8_0.k64.n8.b_q8_0", "format_b"},
      {"dequantize.q4_k.k100.n8", "k"},
      {"dequantize.q4_k.k256.n8.b_bf16", "format_b"},
      {"dequantize.q8_1.k64.n8.tiles", "q8_1"},
      {"quantize.q4_0.k64.n1", "q4_0"},
      {"quantize.q8_k.k64.n1", "k"},
      {"argmax.f32.n4.s5", "splits"},
      {"argmax.q4_0.n4.s2", "q4_0"},
      {"argmax_merge.f32.s2.w1.masked", "masked"},
      {"softmax.f16.k64.n4", "f16"},
      {"glu.q8_0.n64", "q8_0"},
      {"rope.bf16.h4.d64.rot64", "bf16"},
      {"attention_merge.f16.h8.d64", "f16"},
      {"elementwise.q4_k.n8.add", "q4_k"},
      {"sample.f16.s2.w4", "f16"},
      {"gemv.q4_k.k256.n8.b_q8_1_tail", "format_b"},
      {"gemv.q3_k.k256.n8.b_q8_1", "format_b"},
      {"gemv.f32.k256.n8.b_q8_k", "format_b"},
      {"gemv.q4_0.k32.n8.b_q8_k", "k"},
      {"argmax_merge.f32.s2.w4", "warps"},
      {"attend.f16.h34.kvh2.d64.rot64", "heads"},
      {"attend.f16.h8.kvh2.d60.rot32", "head_dim"},
      {"attend.q8_0.h8.kvh2.d80.rot80", "head_dim"},
      {"attend.q4_0.h8.kvh2.d64.rot64", "q4_0"},
      {"attend.f16.h8.kvh2.d64", "rotary"},
      {"attend.f16.h16.kvh1.d64.rot64.w5", "warps"},
      {"attend.f16.h8.kvh2.d64.rot64.s129", "splits"},
      {"attend_rows.f16.h8.kvh2.d72.m4", "head_dim"},
      {"attend_rows.f16.h8.kvh2.d64.m4.s129", "splits"},
      {"attend_rows.f16.h16.kvh1.d64.m4.w5", "warps"},
      {"attend_rows.f16.h8.kvh2.d64.m4.w16", "warps"},
      {"attend.f16.h8.kvh2.d64.rot64.paged", "paged"},
      {"attend.f32.h8.kvh2.d64.rot64.matrix", "matrix"},
      {"attend.f16.h8.kvh2.d160.rot64.matrix", "head_dim"},
      {"attend.f16.h9.kvh1.d64.rot64.w8.matrix", "heads"},
      {"attend.f16.h8.kvh2.d64.rot64.w9.matrix", "warps"},
      {"attend_rows.q8_0.h8.kvh2.d64.m4.matrix", "matrix"},
      {"matmul.q4_k.k256.n16.m4.w8.bl-1", "blocks"},
      {"matmul.q4_k.k256.n16.m4.w18.bl1", "warps"},
      {"matmul.q4_k.k256.n16.m4.w8.bl1.s2", "warps"},
      {"matmul.q4_k.k256.n16.m4.w10.bl1.s3", "splits"},
      {"matmul.q4_k.k256.n16.nb16.b_q4_k.m4.w8.bl1.gated", "warps"},
      {"matmul.q4_k.k256.n16.nb16.b_q4_k.m4.w9.bl1.s2.gated", "gates"},
      {"matmul.q4_k.k256.n16.m4.w8.paired", "paired"},
      {"norm_tokens.f32.k64.m33.w1.batched", "tokens"},
      {"attend_rows.f16.h8.kvh2.d64.m33", "tokens"},
      {"top_k.f32.n4.s5", "splits"},
      {"top_k.f32.n64.w17", "warps"},
      {"top_k.f32.n64.m2", "tokens"},
      {"sample.f32.s2000.w4", "splits"},
      {"sample.f32.s2.m9000.batched", "tokens"},
      {"gemv.f64.k8.n8.b_f16", "format_b"},
      {"gemv.q8_0.k64.n8.b_f64", "format_b"},
      {"retile.f64.k64.n16", "f64"},
      {"quantize.f64.k64.n1", "f64"},
      {"attention.f64.h8.kvh2.d64", "f64"},
      {"gemm_operand.f64.k64.n4", "f64"},
      {"gemm_operand.f32.k64.n4.b_f64", "format_b"},
      {"gemm_operand.f32.k64.n4.b_fp8_e4m3", "format_b"},
      {"gemm.f64.k8.n8.m4.w9.grouped", "grouped"},
      {"gemm.f64.k8.n8.m4.w8.activate", "activation"},
      {"gemm.q8_0.k64.n8.m4.w8", "q8_0"},
  };
  for (const auto& [text, field] : refused) {
    const Result<KernelKey> key = parse_key(text);
    ASSERT_TRUE(key) << text;
    const Result<void> result = check_key(*key);
    ASSERT_FALSE(result) << text;
    EXPECT_NE(result.error().text().find(field), std::string::npos) << result.error().text();
    EXPECT_NE(result.error().text().find(key->text()), std::string::npos);
  }
}

}  // namespace
}  // namespace lathe
