// Owns what the opening of a session or a batch asks of the program.
#include <exception>

#include "engine.h"

namespace lathe::python {

bool says_yes(Callback& question) {
  bool yes = false;
  question.try_to([&](const nb::object& callable) {
    const int answer = PyObject_IsTrue(callable().ptr());
    if (answer < 0) throw nb::python_error();
    yes = answer == 1;
  });
  return yes;
}

std::int32_t Opening::cancelled(void* user) {
  const nb::gil_scoped_acquire acquired;
  auto& opening = *static_cast<Opening*>(user);
  opening.progress_.notice_signals();
  return !opening.wrong_.empty() || opening.progress_.failed() || says_yes(opening.cancel_) ||
         opening.cancel_.failed();
}

// Of an array of another size nothing is read.
std::uint64_t Opening::weight(void* user, const char* tensor, std::int32_t element,
                              std::int64_t bytes) {
  auto& opening = *static_cast<Opening*>(user);
  if (element != LATHE_ELEMENT_BLOCKS) return 0;
  const auto found = opening.weights_.find(tensor);
  if (found == opening.weights_.end()) return 0;
  const auto [address, given] = found->second;
  if (given == bytes) return address;
  opening.wrong_ = std::string("Tensor ") + tensor + " has " + std::to_string(bytes) +
                   " bytes, and its array " + std::to_string(given) + ".";
  return 0;
}

void Opening::ask_in(lathe_session_options& options) {
  options.progress = tell_progress;
  options.progress_user = &progress_;
  options.cancel = cancelled;
  options.cancel_user = this;
  if (weights_.empty()) return;
  options.weights = weight;
  options.weights_user = this;
}

void Opening::rethrow() {
  progress_.rethrow();
  cancel_.rethrow();
  if (!wrong_.empty()) throw nb::value_error(wrong_.c_str());
}

lathe_session_options session_options(const OpenOptions& given, Opening& opening) {
  auto options = api::sized<lathe_session_options>();
  options.executor = number(given.executor);
  options.fusion = number(given.fusion);
  options.kv_format = number(given.kv_format);
  options.context = given.context;
  options.attention_splits = given.attention_splits;
  options.threads = given.threads;
  options.chunk = given.chunk;
  options.wait_limit_ms = given.wait_limit_ms;
  options.device = given.device ? given.device->get() : nullptr;
  options.stream = reinterpret_cast<CUstream_st*>(given.stream);
  options.tuning = given.tuning;
  opening.ask_in(options);
  return options;
}

}  // namespace lathe::python
