// Owns the way of a run's tokens to the caller's function.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>

namespace lathe {

// What the function throws is kept until the run has ended, and it hears of no more. The function
// must outlive the listener.
class TokenListener {
 public:
  explicit TokenListener(const std::function<void(std::int32_t)>& each) : each_(each) {}
  void tell(std::int32_t token) {
    ++told_;
    if (!each_ || thrown_) return;
    try {
      each_(token);
    } catch (...) {
      thrown_ = std::current_exception();
    }
  }
  int told() const { return told_; }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  const std::function<void(std::int32_t)>& each_;
  int told_ = 0;
  std::exception_ptr thrown_;
};

}  // namespace lathe
