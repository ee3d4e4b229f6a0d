// Owns the rows of a table by number: get_rows reads rows of A, set_rows writes rows of D.
// b: the numbers.
KERNEL(get_rows) {
  const u32 index = global_thread();
  if (index >= elements(D)) return;
  const Place at = place(D, index);
  const i64 row = load_index(b + bytes_to(B, at.i1, at.i2, at.i3, 0), B.type);
  const u8* from = a + at.i0 * A.nb[0] + row * A.nb[1] + at.i2 * A.nb[2] + at.i3 * A.nb[3];
  u8* to = d + bytes_to(D, at);
  if (A.type == D.type)
    copy(to, from, A.type);
  else
    store(to, D.type, load(from, A.type));
}

KERNEL(set_rows) {
  const u32 index = global_thread();
  if (index >= elements(A)) return;
  const Place at = place(A, index);
  const i64 row =
      load_index(b + bytes_to(B, at.i1, at.i2 % (u32)B.ne[1], at.i3 % (u32)B.ne[2], 0), B.type);
  const u8* from = a + bytes_to(A, at);
  u8* to = d + at.i0 * D.nb[0] + row * D.nb[1] + at.i2 * D.nb[2] + at.i3 * D.nb[3];
  if (A.type == D.type)
    copy(to, from, A.type);
  else
    store(to, D.type, load(from, A.type));
}
