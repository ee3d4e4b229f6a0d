// Owns the functions of one number.
__device__ inline float activation(int function, float x, float r0, float r1) {
  switch (function) {
    case kScale:
      return fmaf(x, r0, r1);
    case kClamp:
      return fminf(fmaxf(x, r0), r1);
    case kSquare:
      return x * x;
    case kRoot:
      return sqrtf(x);
    case kAbs:
      return fabsf(x);
    case kSign:
      return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    case kNegate:
      return -x;
    case kStep:
      return x > 0 ? 1.0f : 0.0f;
    case kTanh:
      return tanhf(x);
    case kElu:
      return x > 0 ? x : expm1f(x);
    case kRelu:
      return fmaxf(x, 0.0f);
    case kSigmoid:
      return 1.0f / (1.0f + expf(-x));
    case kGelu:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
    case kGeluQuick:
      return x / (1.0f + expf(-1.702f * x));
    case kSilu:
      return x / (1.0f + expf(-x));
    case kHardSwish:
      return x * fminf(1.0f, fmaxf(0.0f, (x + 3.0f) / 6.0f));
    case kHardSigmoid:
      return fminf(1.0f, fmaxf(0.0f, (x + 3.0f) / 6.0f));
    case kExp:
      return expf(x);
    case kExpm1:
      return expm1f(x);
    case kSoftplus:
      return x > 20.0f ? x : logf(1.0f + expf(x));
    case kGeluErf:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case kFloor:
      return floorf(x);
    case kCeil:
      return ceilf(x);
    case kRound:
      return roundf(x);
    case kTrunc:
      return truncf(x);
    case kSine:
      return sinf(x);
    case kCosine:
      return cosf(x);
    case kLog:
      return logf(x);
    default:
      return x;
  }
}
