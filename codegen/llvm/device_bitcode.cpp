// Owns the set of device functions in the bitcode: this file is compiled for NVPTX by clang, not
// for the host.
#include "ptx_templates/ops/argmax.h"
#include "ptx_templates/ops/attention.h"
#include "ptx_templates/ops/embed.h"
#include "ptx_templates/ops/gemv.h"
#include "ptx_templates/ops/glu.h"
#include "ptx_templates/ops/kv_cache.h"
#include "ptx_templates/ops/rms_norm.h"
#include "ptx_templates/ops/rope.h"
#include "ptx_templates/ops/sample.h"
#include "ptx_templates/ops/top_k.h"
