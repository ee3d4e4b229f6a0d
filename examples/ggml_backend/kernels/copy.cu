// Owns copies between tensors of the same number of elements, whatever their shapes and types.
KERNEL(copy_elements) {
  const u32 index = global_thread();
  if (index >= elements(D)) return;
  u8* to = d + bytes_to(D, place(D, index));
  const u8* from = a + bytes_to(A, place(A, index));
  if (D.type == A.type)
    copy(to, from, A.type);
  else
    store(to, D.type, load(from, A.type));
}
