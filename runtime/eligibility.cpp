#include "runtime/eligibility.h"

namespace lathe {

bool another_executor_may_do(const Error& error) {
  return error.code == Code::not_eligible || error.code == Code::not_found ||
         error.code == Code::compile || error.code == Code::unsupported;
}

}  // namespace lathe
