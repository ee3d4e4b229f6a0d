// Owns hidden states on their way into a session and out of it.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "lathe/codegen/kernel_table.h"
#include "runtime/no_memory.h"
#include "runtime/session_base.h"

namespace lathe {
namespace {

constexpr const char* kOutputNorm = "output_norm.weight";

Result<void> check_size(std::size_t values, const Plan& plan) {
  if (values == std::size_t(plan.spec.hidden)) return {};
  return Error{Code::invalid_argument,
               fmt::format("A hidden state of {} has {} values, not {}.", plan.spec.name,
                           plan.spec.hidden, values),
               {}};
}

// Norms `state` as the plan's head would.
Result<void> norm(const GgufFile& file, const ModelSpec& spec, std::span<float> state) {
  const GgufTensor* tensor = file.tensor(kOutputNorm);
  if (!tensor || tensor->bytes != std::int64_t(state.size_bytes()))
    return Error{Code::internal, fmt::format("{} is not as planned.", kOutputNorm), {}};
  // The file has it where it pleases.
  std::vector<float> weight(state.size());
  std::memcpy(weight.data(), file.data(*tensor).data(), state.size_bytes());
  KernelKey key{.type = KernelType::rms_norm};
  key.k = spec.hidden;
  key.n = 1;
  key.epsilon = spec.epsilon;
  const std::array<void*, 3> arguments = {state.data(), weight.data(), state.data()};
  row(key.type).oracle(key, arguments, 0, 1);
  return {};
}

}  // namespace

Result<void> SessionBase::step_hidden(std::span<const float> state, std::int32_t token) {
  if (plan_.input.bytes == 0)
    return Error{Code::invalid_argument,
                 "This session takes tokens: open it with a ModelPart that takes hidden states.",
                 {}};
  LATHE_TRY(check_size(state.size(), plan_));
  if (token < -1 || token >= plan_.spec.vocab)
    return Error{Code::out_of_range,
                 fmt::format("Token {} is outside the vocabulary of {}, and not -1.", token,
                             plan_.spec.vocab),
                 {}};
  LATHE_TRY(check_room(1));
  return take_hidden(state, token);
}

Result<void> SessionBase::read_hidden(HiddenState which, std::span<float> to) {
  LATHE_TRY(check_size(to.size(), plan_));
  if (!stepped_ || ended_early_)
    return Error{Code::invalid_argument,
                 ended_early_ ? "There is no hidden state: the last run ended at a stop token."
                              : "There is no hidden state before the next step.",
                 {}};
  LATHE_TRY(fetch_hidden(to));
  if (which == HiddenState::stream) return {};
  return or_no_memory("a hidden state", [&] { return norm(*file_, plan_.spec, to); });
}

}  // namespace lathe
