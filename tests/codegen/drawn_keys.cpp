// Owns the drawing of keys and what the table must say of any of them.
#include "tests/codegen/drawn_keys.h"

#include <algorithm>
#include <limits>

#include "emulation/op_registry.h"
#include "lathe/codegen/emit.h"
#include "tests/codegen/kernel_cases.h"

namespace lathe::testing {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

template <typename Value>
const Value& any(verification::Random& random, const std::vector<Value>& of) {
  return of[static_cast<std::size_t>(random.below(static_cast<int>(of.size())))];
}

// Near the value that was there, a number that shapes have, or none that they have.
int drawn_integer(verification::Random& random, int was) {
  switch (random.below(8)) {
    case 0:
      return was == kMost ? was : was + 1;
    case 1:
      return was <= 0 ? 0 : was - 1;
    case 2:
      return was > kMost / 2 ? kMost : std::max(was, 0) * 2;
    case 3:
      return was / 2;
    case 4:
      return 32 * random.below(600);
    case 5:
      return 256 * random.below(120);
    case 6:
      return random.below(40);
    default:
      return any(random, std::vector<int>{-1, 0, 1, 7, 255, 65536, 1 << 20, 1 << 30, kMost});
  }
}

float drawn_real(verification::Random& random) {
  const float infinity = std::numeric_limits<float>::infinity();
  return any(random, std::vector<float>{0.0f, 1.0f, -1.0f, 1e-6f, 1e-30f, 3e38f, infinity,
                                        std::numeric_limits<float>::quiet_NaN()});
}

void change(KernelKey& key, const KeyField& field, verification::Random& random) {
  if (field.integer) key.*field.integer = drawn_integer(random, key.*field.integer);
  if (field.real) key.*field.real = drawn_real(random);
  if (field.flag) key.*field.flag = !(key.*field.flag);
  draw_name(key, field, random);
}

std::string launch_faults(const KernelRow& kernel, const KernelKey& key) {
  const Geometry g = kernel.geometry(key);
  if (g.threads < 32 || g.threads > 1024 || g.threads % 32 != 0) return "its threads";
  if (g.grid_x < 1 || g.grid_x > static_cast<unsigned>(kMost)) return "its blocks along x";
  if (g.grid_y < 1 || g.grid_y > 65535) return "its blocks along y";
  if (g.shared_bytes > 227 * 1024) return "its shared memory";
  const std::vector<Param> params = kernel.params(key);
  for (const Param& param : params)
    if (param.bytes <= 0 || param.oracle_bytes() <= 0)
      return std::string("the bytes of ") + param.name;
  const OpCall call = kernel.call(key);
  const auto values = emulation::op_values(call, std::vector<void*>(params.size()));
  if (!values) return values.error().text();
  const Cost cost = kernel.cost(key);
  if (cost.bytes_read <= 0 || cost.bytes_written <= 0 || cost.operations <= 0) return "its cost";
  return {};
}

}  // namespace

KernelKey drawn_key(verification::Random& random) {
  KernelKey key = any(random, kernel_cases(any(random, families()))).key;
  const std::span<const KeyField> fields = key_fields();
  for (int changes = 1 + random.below(4); changes > 0;) {
    const auto which = static_cast<std::size_t>(random.below(static_cast<int>(fields.size())));
    // Those of other families are always refused.
    if (!row(key.type).uses(fields[which].name) && random.below(20) > 0) continue;
    change(key, fields[which], random);
    --changes;
  }
  return key;
}

void draw_name(KernelKey& key, const KeyField& field, verification::Random& random) {
  if (field.pairing) key.*field.pairing = static_cast<Pairing>(random.below(2));
  if (field.activation) key.*field.activation = static_cast<Activation>(random.below(4));
  if (field.operation) key.*field.operation = static_cast<Operation>(random.below(4));
  if (field.layout) key.*field.layout = static_cast<Layout>(random.below(2));
  if (field.format)
    key.*field.format =
        formats()[static_cast<std::size_t>(random.below(static_cast<int>(formats().size())))]
            .format;
}

void set_another(KernelKey& key, const KeyField& field) {
  static const KernelKey defaults;
  if (field.integer) key.*field.integer = defaults.*field.integer + 1;
  if (field.real) key.*field.real = defaults.*field.real + 0.5f;
  if (field.flag) key.*field.flag = true;
  if (field.pairing) key.*field.pairing = Pairing::halves;
  if (field.activation) key.*field.activation = Activation::gelu_tanh;
  if (field.operation) key.*field.operation = Operation::add;
  if (field.layout) key.*field.layout = Layout::tiles;
  if (field.format) key.*field.format = Format::q4_0;
}

std::string table_faults(const KernelKey& key) {
  const KernelRow& kernel = row(key.type);
  if (const Result<void> valid = check_key(key); !valid) {
    const Error& error = valid.error();
    if (error.code == Code::internal) return "refused as an internal error: " + error.text();
    if (error.message.size() < 10) return "refused without a reason: " + error.text();
    return {};
  }
  const Result<KernelKey> read = parse_key(key.text());
  if (!read || !(*read == key)) return "its text does not read back";
  if (const Result<std::string> source = cuda_source(key); !source) return source.error().text();
  return launch_faults(kernel, key);
}

}  // namespace lathe::testing
