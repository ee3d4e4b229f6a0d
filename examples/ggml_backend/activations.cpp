// Owns the operations on single elements: activations, gated units, scales.
#include <cstring>

#include "operation_rows.h"
#include "own_kernels.h"

namespace lathe_ggml {
namespace {

#include "functions.inc"
constexpr int kNone = -1;

int unary_function(ggml_unary_op op) {
  switch (op) {
    case GGML_UNARY_OP_ABS:
      return kAbs;
    case GGML_UNARY_OP_SGN:
      return kSign;
    case GGML_UNARY_OP_NEG:
      return kNegate;
    case GGML_UNARY_OP_STEP:
      return kStep;
    case GGML_UNARY_OP_TANH:
      return kTanh;
    case GGML_UNARY_OP_ELU:
      return kElu;
    case GGML_UNARY_OP_RELU:
      return kRelu;
    case GGML_UNARY_OP_SIGMOID:
      return kSigmoid;
    case GGML_UNARY_OP_GELU:
      return kGelu;
    case GGML_UNARY_OP_GELU_QUICK:
      return kGeluQuick;
    case GGML_UNARY_OP_SILU:
      return kSilu;
    case GGML_UNARY_OP_HARDSWISH:
      return kHardSwish;
    case GGML_UNARY_OP_HARDSIGMOID:
      return kHardSigmoid;
    case GGML_UNARY_OP_EXP:
      return kExp;
    case GGML_UNARY_OP_EXPM1:
      return kExpm1;
    case GGML_UNARY_OP_SOFTPLUS:
      return kSoftplus;
    case GGML_UNARY_OP_GELU_ERF:
      return kGeluErf;
    case GGML_UNARY_OP_FLOOR:
      return kFloor;
    case GGML_UNARY_OP_CEIL:
      return kCeil;
    case GGML_UNARY_OP_ROUND:
      return kRound;
    case GGML_UNARY_OP_TRUNC:
      return kTrunc;
    default:
      return kNone;
  }
}

int function_of(const ggml_tensor* op) {
  switch (op->op) {
    case GGML_OP_SCALE:
      return kScale;
    case GGML_OP_CLAMP:
      return kClamp;
    case GGML_OP_SQR:
      return kSquare;
    case GGML_OP_SQRT:
      return kRoot;
    case GGML_OP_SIN:
      return kSine;
    case GGML_OP_COS:
      return kCosine;
    case GGML_OP_LOG:
      return kLog;
    case GGML_OP_REPEAT:
      return kIdentity;
    case GGML_OP_UNARY:
      return unary_function(ggml_get_unary_op(op));
    default:
      return kNone;
  }
}

int gate_function(ggml_glu_op op) {
  switch (op) {
    case GGML_GLU_OP_REGLU:
      return kRelu;
    case GGML_GLU_OP_GEGLU:
      return kGelu;
    case GGML_GLU_OP_SWIGLU:
      return kSilu;
    case GGML_GLU_OP_GEGLU_ERF:
      return kGeluErf;
    case GGML_GLU_OP_GEGLU_QUICK:
      return kGeluQuick;
    default:
      return kNone;
  }
}

}  // namespace

const char* refuse_map(const ggml_tensor* op) {
  if (function_of(op) == kNone) return "this function";
  return holds_numbers(op) && holds_numbers(op->src[0]) ? nullptr : "this type";
}

Steps lower_map(const ggml_tensor* op) {
  float reals[2];
  std::memcpy(reals, op->op_params, sizeof reals);
  if (op->op != GGML_OP_SCALE && op->op != GGML_OP_CLAMP) reals[0] = reals[1] = 0;
  return one(per_element("map", ggml_nelements(op),
                         {.d = shape_of(op),
                          .a = shape_of(op->src[0]),
                          .numbers = {function_of(op)},
                          .reals = {reals[0], reals[1]}},
                         {result(), operand(0)}));
}

const char* refuse_glu(const ggml_tensor* op) {
  const ggml_glu_op kind = ggml_get_glu_op(op);
  if (gate_function(kind) == kNone && kind != GGML_GLU_OP_SWIGLU_OAI) return "this gated unit";
  if (!holds_numbers(op) || !holds_numbers(op->src[0])) return "this type";
  return op->src[1] && !holds_numbers(op->src[1]) ? "this type" : nullptr;
}

Steps lower_glu(const ggml_tensor* op) {
  const bool halves = !op->src[1];
  const bool swapped = halves && op->op_params[1] != 0;
  float reals[2];
  std::memcpy(reals, op->op_params + 2, sizeof reals);
  const int function = gate_function(ggml_get_glu_op(op));
  if (function != kNone) reals[0] = reals[1] = 0;
  return one(per_element("glu", ggml_nelements(op),
                         {.d = shape_of(op),
                          .a = shape_of(op->src[0]),
                          .b = shape_of(op->src[1]),
                          .numbers = {function, halves, swapped},
                          .reals = {reals[0], reals[1]}},
                         {result(), operand(0), halves ? result() : operand(1)}));
}

}  // namespace lathe_ggml
