// Owns the text route: PTX templates filled with a key's numbers.
#include "codegen/routes.h"

namespace lathe {

Result<std::string> template_ptx(const KernelKey& key, const Target&) {
  return Error{Code::not_eligible, "no PTX template covers " + key.text(), {}};
}

}  // namespace lathe
