// Owns sums, differences, products and quotients; B is repeated to the size of A. N: which.
KERNEL(binary) {
  const u32 index = global_thread();
  if (index >= elements(D)) return;
  const Place at = place(D, index);
  const float x = load(a + bytes_to(A, at), A.type);
  const float y = load(b + bytes_to_repeated(B, at), B.type);
  const float value = N[0] == 0 ? x + y : N[0] == 1 ? x - y : N[0] == 2 ? x * y : x / y;
  store(d + bytes_to(D, at), D.type, value);
}
