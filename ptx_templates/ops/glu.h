// Owns y = activation(gate) * up: SwiGLU, GeGLU and ReGLU.
#pragma once

#include "ops/math.h"

namespace lathe::dev {

LATHE_OP glu_silu(const f32* gate, const f32* up, f32* y, int n, int warps) {
  const int i = block_x() * warps * kWarp + thread_index();
  if (i < n) y[i] = silu(gate[i]) * up[i];
}
LATHE_OP glu_gelu_tanh(const f32* gate, const f32* up, f32* y, int n, int warps) {
  const int i = block_x() * warps * kWarp + thread_index();
  if (i < n) y[i] = gelu_tanh(gate[i]) * up[i];
}
LATHE_OP glu_gelu_erf(const f32* gate, const f32* up, f32* y, int n, int warps) {
  const int i = block_x() * warps * kWarp + thread_index();
  if (i < n) y[i] = gelu_erf(gate[i]) * up[i];
}
LATHE_OP glu_relu(const f32* gate, const f32* up, f32* y, int n, int warps) {
  const int i = block_x() * warps * kWarp + thread_index();
  if (i < n) y[i] = relu(gate[i]) * up[i];
}

}  // namespace lathe::dev
