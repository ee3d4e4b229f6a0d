// Owns the walk through a vector's words, in double precision.
#include "verification/atom_choices.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lathe::verification {
namespace {

constexpr double kMostHalf = 65504, kMostFloat = 3.4e38;  // some f32 sums above are infinite

// How far apart two products are in f32 that are the same, in parts of the greatest residual so far
// times the longest atom. In each a lane adds an eighth of the elements, then three times what
// other lanes have; and what is left of a vector is rounded once a term.
double tolerance(const KernelKey& key) {
  return 2.0 * ((key.head_dim + 7) / 8 + 3 + key.terms + 1) * 0x1p-24;
}

class Vector {
 public:
  Vector(const KernelCase& c, const float* x, const float* table)
      : case_(c), left_(x, x + c.key.head_dim), table_(table) {
    for (int id = 0; id < c.key.atoms; ++id) longest_ = std::max(longest_, length(atom(id)));
  }

  // Empty, or what is wrong with the next word.
  std::string take(std::uint32_t word) {
    const int id = static_cast<int>(word >> 16);
    if (id >= case_.key.atoms) return "there is no atom " + std::to_string(id);
    const double coefficient = f16_to_f32(static_cast<std::uint16_t>(word));
    greatest_ = std::max(greatest_, length(left_.data()));
    std::vector<double> products;
    for (int other = 0; other < case_.key.atoms; ++other) products.push_back(product(other));
    std::string wrong = problem_of(id, coefficient, products);
    for (std::size_t e = 0; e < left_.size(); ++e)
      left_[e] -= coefficient * static_cast<double>(atom(id)[e]);
    ++term_;
    return wrong;
  }

 private:
  std::string problem_of(int id, double coefficient, const std::vector<double>& products) const {
    double best = -1;
    for (const double one : products)
      if (std::abs(one) > best) best = std::abs(one);
    if (best < 0) return id == 0 && std::isnan(coefficient) ? "" : "nothing can be chosen";
    const double chosen = products[static_cast<std::size_t>(id)];
    // Finite sums in double precision may be none in f32, and the other way round.
    const double slack = tolerance(case_.key) * greatest_ * longest_;
    if (std::isfinite(best) && !(best - std::abs(chosen) <= slack))
      return "atom " + std::to_string(id) + " has the product " + std::to_string(chosen) +
             ", another " + std::to_string(best);
    if (!std::isfinite(best) && std::abs(chosen) != best)
      return "atom " + std::to_string(id) + " is not the infinite one";
    for (int other = 0; other < id; ++other) {
      const double as_great = std::abs(products[static_cast<std::size_t>(other)]);
      const bool known = exact() || !std::isfinite(best) || is_same(other, id);
      if (as_great == std::abs(chosen) && known)
        return "atom " + std::to_string(other) + " is as great as " + std::to_string(id);
    }
    const double size = std::abs(chosen);
    if (size > kMostHalf) {
      const bool same_sign = (coefficient > 0) == (chosen > 0);
      const bool most = std::abs(coefficient) == kMostHalf, infinite = std::isinf(coefficient);
      if (same_sign && (size < kMostFloat ? most : most || infinite)) return "";
      if (size > kMostHalf + slack) return "the coefficient is not the greatest that there is";
    }
    const double rounding = std::max(size * 0x1p-11, 0x1p-25);
    if (std::abs(coefficient - chosen) <= slack + rounding) return "";
    return "the coefficient is " + std::to_string(coefficient) + ", the product " +
           std::to_string(chosen);
  }

  // f32 has the first products of small whole numbers to the bit.
  bool exact() const { return term_ == 0 && case_.values == Values::ties; }

  bool is_same(int a, int b) const {
    bool same = true, opposite = true;
    for (int e = 0; e < case_.key.head_dim; ++e) {
      same = same && atom(a)[e] == atom(b)[e];
      opposite = opposite && atom(a)[e] == -atom(b)[e];
    }
    return same || opposite;
  }

  const float* atom(int id) const { return table_ + std::int64_t{id} * case_.key.head_dim; }
  double product(int id) const {
    double sum = 0;
    for (std::size_t e = 0; e < left_.size(); ++e)
      sum += left_[e] * static_cast<double>(atom(id)[e]);
    return sum;
  }
  template <typename T>
  double length(const T* x) const {
    double squares = 0;
    for (int e = 0; e < case_.key.head_dim; ++e)
      squares += static_cast<double>(x[e]) * static_cast<double>(x[e]);
    return std::sqrt(squares);
  }

  const KernelCase& case_;
  std::vector<double> left_;
  const float* table_;
  double longest_ = 0;
  double greatest_ = 0;
  int term_ = 0;
};

std::string walk(const KernelCase& c, const float* x, const float* table,
                 const std::uint32_t* words) {
  Vector vector(c, x, table);
  for (int term = 0; term < c.key.terms; ++term)
    if (const std::string wrong = vector.take(words[term]); !wrong.empty())
      return "word " + std::to_string(term) + ": " + wrong;
  return {};
}

template <typename T>
const T* as(const Bytes& bytes) {
  return reinterpret_cast<const T*>(bytes.data());
}

}  // namespace

std::string atoms_problem(const KernelCase& c, std::span<const Bytes> expected,
                          std::span<const Bytes> actual) {
  constexpr std::size_t kTables = 3, kCaches = 5;
  const std::int64_t of_position = std::int64_t{c.key.kv_heads} * c.key.terms;
  const std::int64_t first = c.position * of_position;
  for (std::size_t part : {0, 1}) {
    const std::string name = part == 0 ? "key of head " : "value of head ";
    for (int head = 0; head < c.key.kv_heads; ++head) {
      const float* x = as<float>(expected[part]) + std::int64_t{head} * c.key.head_dim;
      const float* table = as<float>(expected[kTables + part]);
      const std::int64_t at = first + std::int64_t{head} * c.key.terms;
      for (const auto& [whose, words] :
           {std::pair{"", as<std::uint32_t>(actual[kCaches + part])},
            {"the oracle's ", as<std::uint32_t>(expected[kCaches + part])}})
        if (const std::string wrong = walk(c, x, table, words + at); !wrong.empty())
          return whose + name + std::to_string(head) + ", " + wrong;
    }
    const Bytes &should = expected[kCaches + part], &is = actual[kCaches + part];
    for (std::size_t i = 0; i < should.size(); ++i) {
      const auto word = static_cast<std::int64_t>(i / 4);
      if (should[i] != is[i] && (word < first || word >= first + of_position))
        return "byte " + std::to_string(i) + " of a cache was written, which is no word of the " +
               "position's";
    }
  }
  return {};
}

}  // namespace lathe::verification
