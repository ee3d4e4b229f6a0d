// Owns the gated linear units: activation(x) * gate. N: the function (-1: that of gpt-oss), whether
// A has both halves in a row, whether the gate is the first of them. R: alpha and limit.
KERNEL(glu) {
  const u32 index = global_thread();
  if (index >= elements(D)) return;
  const Place at = place(D, index);
  const i64 half = N[1] ? D.ne[0] * A.nb[0] : 0;
  const u8* first = a + bytes_to(A, at);
  float x = load(first + (N[2] ? half : 0), A.type);
  float gate = N[1] ? load(first + (N[2] ? 0 : half), A.type) : load(b + bytes_to(B, at), B.type);
  if (N[0] < 0) {
    x = fminf(x, R[1]);
    gate = fmaxf(fminf(gate, R[1]), -R[1]);
    x = x / (1.0f + expf(-R[0] * x));
    gate += 1.0f;
  } else {
    x = activation(N[0], x, 0.0f, 0.0f);
  }
  store(d + bytes_to(D, at), D.type, x * gate);
}
