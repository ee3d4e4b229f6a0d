// Owns the norms of rows, a block for each. N: 0 root mean square, 1 mean and variance, 2 length.
// R: epsilon.
KERNEL(norm_rows) {
  const Place row = place(D, blockIdx.x * (u32)D.ne[0]);
  const u8* from = a + bytes_to(A, row);
  u8* to = d + bytes_to(D, row);
  const u32 count = (u32)A.ne[0];
  float mean = 0;
  if (N[0] == 1) {
    float sum = 0;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) sum += load(from + i * A.nb[0], A.type);
    mean = block_sum(sum) / (float)count;
  }
  float squares = 0;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    const float x = load(from + i * A.nb[0], A.type) - mean;
    squares = fmaf(x, x, squares);
  }
  squares = block_sum(squares);
  const float scale =
      N[0] == 2 ? 1.0f / fmaxf(sqrtf(squares), R[0]) : 1.0f / sqrtf(squares / (float)count + R[0]);
  for (u32 i = threadIdx.x; i < count; i += blockDim.x)
    store(to + i * D.nb[0], D.type, (load(from + i * A.nb[0], A.type) - mean) * scale);
}
