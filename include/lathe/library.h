// The C++ library in one include. Its classes have no stable binary form: it is for programs that
// link the static library, built from the same sources by the same compiler. Whoever embeds
// liblathe.so includes lathe/lathe.h (C) or lathe/lathe.hpp (C++).
#pragma once

#include "lathe/codegen/custom_kernel.h"
#include "lathe/codegen/emit.h"
#include "lathe/codegen/format.h"
#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/program.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/sampling.h"
#include "lathe/codegen/target.h"
#include "lathe/codegen/tile.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/model_spec.h"
#include "lathe/plan/plan.h"
#include "lathe/runtime/batch.h"
#include "lathe/runtime/cache.h"
#include "lathe/runtime/choice.h"
#include "lathe/runtime/device.h"
#include "lathe/runtime/drafts.h"
#include "lathe/runtime/environment.h"
#include "lathe/runtime/kv.h"
#include "lathe/runtime/log.h"
#include "lathe/runtime/session.h"
#include "lathe/runtime/system.h"
#include "lathe/runtime/workbench.h"
