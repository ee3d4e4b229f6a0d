// Owns the gate that SessionOptions::parity puts before a session: a few tokens by the session and
// by the cpu executor, and how alike what comes out is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/session_base.h"

namespace lathe {
namespace {

constexpr int kTokens = 3;  // so that attention sees others than itself

// Values in [-1, 1) that spread over all of them.
std::vector<float> some_state(int values, int number) {
  std::vector<float> state(static_cast<std::size_t>(values));
  std::uint32_t word = std::uint32_t(number) * 2654435761u + 1;
  for (float& value : state) {
    word = word * 1664525u + 1013904223u;
    value = float(std::int32_t(word)) / 2147483648.0f;
  }
  return state;
}

Result<std::vector<float>> pass(Session& session) {
  const Plan& plan = session.plan();
  for (int i = 0; i < std::min(kTokens, plan.options.context); ++i) {
    // Far from each other in any vocabulary.
    const auto token = std::int32_t(std::int64_t{i + 1} * plan.spec.vocab / (kTokens + 2));
    LATHE_TRY(plan.input.bytes > 0 ? session.step_hidden(some_state(plan.spec.hidden, i))
                                   : session.step(token));
  }
  if (plan.logits.bytes > 0) {
    LATHE_ASSIGN(const std::span<const float> logits, session.logits());
    return std::vector<float>(logits.begin(), logits.end());
  }
  std::vector<float> state(static_cast<std::size_t>(plan.spec.hidden));
  LATHE_TRY(session.read_hidden(HiddenState::stream, state));
  return state;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += double(a[i]) * b[i];
    of_a += double(a[i]) * a[i];
    of_b += double(b[i]) * b[i];
  }
  return product / std::sqrt(of_a * of_b);
}

}  // namespace

Result<void> SessionBase::hold_to_oracles(const SessionOptions& options) {
  if (options.parity == 0) return {};
  SessionOptions oracles;
  oracles.executor = ExecutorKind::cpu;
  oracles.plan = plan_.options;
  oracles.plan.atoms = options.plan.atoms;  // whose values are the plan's tables by now
  oracles.plan.context = std::min(kTokens, plan_.options.context);
  // Of a cache in q8_0 only the fused plan has oracles.
  if (oracles.plan.kv != Format::q8_0) oracles.plan.fusion = Fusion::none;
  oracles.plan.tuning.clear();  // of the session's kernels, which may be others
  oracles.plan.measured.reset();
  oracles.threads = options.threads;
  LATHE_ASSIGN(Plan plan, build_session_plan(*file_, oracles.plan));
  LATHE_ASSIGN(const std::unique_ptr<Session> expected,
               open_cpu_session(file_, std::move(plan), oracles));
  LATHE_ASSIGN(const std::vector<float> right, pass(*expected));
  LATHE_ASSIGN(const std::vector<float> found, pass(*this));
  report_.parity = cosine(found, right);
  if (!(report_.parity >= options.parity))
    return Error{Code::internal,
                 fmt::format("The session does not compute what the oracles do: the cosine is "
                             "{:.9f}, and at least {} was wanted.",
                             report_.parity, options.parity),
                 {{"model", file_->path()}, {"executor", report_.executor}}};
  return reset();
}

}  // namespace lathe
