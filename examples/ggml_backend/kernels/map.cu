// Owns what is done to each element by itself: scale, activations, copies to another type. A is
// repeated where the result is larger. N: the function. R: its two numbers.
KERNEL(map) {
  const u32 index = global_thread();
  if (index >= elements(D)) return;
  const Place at = place(D, index);
  const float x = load(a + bytes_to_repeated(A, at), A.type);
  store(d + bytes_to(D, at), D.type, activation(N[0], x, R[0], R[1]));
}
