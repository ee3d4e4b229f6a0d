// Owns what atoms are when nobody brings any, and what is wrong with those that somebody brings.
#include "plan/kv_atoms.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "lathe/codegen/kernel_table.h"
#include "plan/model_part.h"

namespace lathe {
namespace {

// A choice by products is the nearest atom, and what is left gets shorter, where all are 1 long.
constexpr double kLengthError = 1e-3;

Error refused(std::string why) {
  return {Code::invalid_argument, "no KV cache of atoms: " + std::move(why), {}};
}

// The same numbers on every machine: SplitMix64.
class Numbers {
 public:
  // Of about a normal distribution: a sum of twelve uniform ones.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(bits() >> 11) * 0x1p-53;
    return sum;
  }

 private:
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  std::uint64_t state_ = 1;
};

// The axes, as many as there are, then directions drawn at random.
std::vector<float> own_atoms(int count, int head_dim) {
  const auto d = static_cast<std::size_t>(head_dim);
  std::vector<float> values(static_cast<std::size_t>(count) * d);
  Numbers numbers;
  std::vector<double> drawn(d);
  for (std::size_t atom = 0; atom < static_cast<std::size_t>(count); ++atom) {
    if (atom < d) {
      values[atom * d + atom] = 1;
      continue;
    }
    double squares = 0;
    for (double& number : drawn) {
      number = numbers.normal();
      squares += number * number;
    }
    for (std::size_t e = 0; e < d; ++e)
      values[atom * d + e] = static_cast<float>(drawn[e] / std::sqrt(squares));
  }
  return values;
}

// "Atom 3", of several tables "atom 3 of the values of layer 1".
std::string name_of(std::size_t atom, std::size_t table, bool several) {
  if (!several) return fmt::format("atom {}", atom);
  return fmt::format("atom {} of the {} of layer {}", atom, table % 2 ? "values" : "keys",
                     table / 2);
}

Result<void> check_lengths(const std::vector<float>& values, std::size_t head_dim,
                           std::size_t atoms) {
  for (std::size_t i = 0; i < values.size() / head_dim; ++i) {
    double squares = 0;
    for (std::size_t e = 0; e < head_dim; ++e) {
      const double value = values[i * head_dim + e];
      squares += value * value;
    }
    if (std::abs(std::sqrt(squares) - 1) <= kLengthError) continue;
    return refused(fmt::format("{} is {:.5g} long; all must be 1 long",
                               name_of(i % atoms, i / atoms, values.size() > atoms * head_dim),
                               std::sqrt(squares)));
  }
  return {};
}

// How many tables of `atoms` atoms so many values are: one for all layers, or two for each.
Result<std::size_t> tables_of(std::size_t values, int atoms, int head_dim, int layers) {
  const std::size_t of_one = static_cast<std::size_t>(atoms) * static_cast<std::size_t>(head_dim);
  const std::size_t of_layers = 2 * static_cast<std::size_t>(layers);
  const std::size_t tables = values / of_one;
  if (values % of_one == 0 && (tables == 1 || tables == of_layers)) return tables;
  return refused(
      fmt::format("{} values were given; {} atoms of {} are {}, and those of the keys "
                  "and of the values of {} layers {}",
                  values, atoms, head_dim, of_one, layers, of_layers * of_one));
}

}  // namespace

Result<void> check_atoms(const PlanOptions& options, const ModelSpec& spec) {
  const KvAtoms& atoms = options.atoms;
  if (atoms.count == 0) {
    if (atoms.values.empty()) return {};
    return refused(fmt::format("{} values were given, and no count", atoms.values.size()));
  }
  KernelKey key{.type = KernelType::kv_append};
  key.kv_heads = spec.kv_heads;
  key.head_dim = spec.head_dim;
  key.atoms = atoms.count;
  key.terms = atoms.terms;
  if (const Result<void> valid = row(key.type).check(key); !valid)
    return refused(valid.error().message);
  if (options.kv_pages > 0 || options.sequences > 1)
    return refused("it has the positions of one sequence, in a row; there are no batches of it");
  if (options.fusion != Fusion::full) return {};
  return Error{Code::unsupported,
               "a KV cache of atoms has a kernel for each operation alone, and no fused ones",
               {}};
}

Result<void> check_atom_values(const PlanOptions& options, const ModelSpec& spec,
                               std::size_t values) {
  LATHE_TRY(check_atoms(options, spec));
  LATHE_ASSIGN(const ModelPart part, resolve_part(options.part, spec));
  LATHE_TRY(tables_of(values, options.atoms.count, spec.head_dim, part.layers));
  return {};
}

Result<void> add_atom_tables(Plan& plan) {
  KvAtoms& atoms = plan.options.atoms;
  if (atoms.count == 0) return {};
  const auto head_dim = static_cast<std::size_t>(plan.spec.head_dim);
  const auto count = static_cast<std::size_t>(atoms.count);
  std::vector<float> values = std::exchange(atoms.values, {});
  if (values.empty()) values = own_atoms(atoms.count, plan.spec.head_dim);
  LATHE_ASSIGN(const std::size_t tables,
               tables_of(values.size(), atoms.count, plan.spec.head_dim, plan.spec.layers));
  LATHE_TRY(check_lengths(values, head_dim, count));
  if (tables == 1) {
    plan.tables.push_back({"atoms", std::move(values)});
    return {};
  }
  for (std::size_t table = 0; table < tables; ++table) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(table * count * head_dim);
    plan.tables.push_back({fmt::format("{}_atoms{}", table % 2 ? "v" : "k", table / 2),
                           {from, from + static_cast<std::ptrdiff_t>(count * head_dim)}});
  }
  return {};
}

}  // namespace lathe
