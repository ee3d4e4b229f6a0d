// Owns which failure of one executor leaves another to try.
#pragma once

#include "lathe/codegen/result.h"

namespace lathe {

// Whether what a persistent kernel met concerns nothing but itself.
bool another_executor_may_do(const Error& error);

}  // namespace lathe
