// Owns products of matrices of numbers, D = B A^T, with heads of A repeated.
//
// `dot` has a warp for each element and is for few columns: it reads A once for each. `product`
// has a block for 64 rows by 64 columns, which go through shared memory 16 at a time.
KERNEL(dot) {
  const u32 index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (index >= elements(D)) return;
  const Place at = place(D, index);
  const u8* x =
      a + bytes_to(A, 0, at.i0, at.i2 / (u32)(D.ne[2] / A.ne[2]), at.i3 / (u32)(D.ne[3] / A.ne[3]));
  const u8* y = b + bytes_to(B, 0, at.i1, at.i2, at.i3);
  float sum[4] = {};
  u32 i = threadIdx.x % 32;
  for (; i + 96 < (u32)A.ne[0]; i += 128)
    for (int j = 0; j < 4; ++j)
      sum[j] = fmaf(load(x + (i + 32 * j) * A.nb[0], A.type),
                    load(y + (i + 32 * j) * B.nb[0], B.type), sum[j]);
  for (; i < (u32)A.ne[0]; i += 32)
    sum[0] = fmaf(load(x + i * A.nb[0], A.type), load(y + i * B.nb[0], B.type), sum[0]);
  const float total = warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
  if (threadIdx.x % 32 == 0) store(d + bytes_to(D, at), D.type, total);
}

enum { kSide = 64, kDepth = 16, kPitch = kSide + 4 };

// The part of 64 rows from `first` on that lies `from` values along them; zeros past the end.
__device__ inline void load_part(float (*part)[kPitch], const u8* rows, int type, i64 along,
                                 i64 across, u32 first, u32 count, u32 from, u32 depth) {
  for (u32 i = threadIdx.x; i < kSide * kDepth; i += 256) {
    const u32 k = i % kDepth, row = i / kDepth;
    const bool there = first + row < count && from + k < depth;
    part[k][row] = there ? load(rows + (first + row) * across + (from + k) * along, type) : 0.0f;
  }
}

KERNEL(product) {
  __shared__ float left[kDepth][kPitch];
  __shared__ float right[kDepth][kPitch];
  const u32 rows = (u32)D.ne[0], columns = (u32)D.ne[1], depth = (u32)A.ne[0];
  const u32 row_blocks = (rows + kSide - 1) / kSide;
  const u32 row = blockIdx.x % row_blocks * kSide, column = blockIdx.x / row_blocks * kSide;
  const u32 i2 = blockIdx.y % (u32)D.ne[2], i3 = blockIdx.y / (u32)D.ne[2];
  const u8* x = a + bytes_to(A, 0, 0, i2 / (u32)(D.ne[2] / A.ne[2]), i3 / (u32)(D.ne[3] / A.ne[3]));
  const u8* y = b + bytes_to(B, 0, 0, i2, i3);
  const u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (u32 from = 0; from < depth; from += kDepth) {
    load_part(left, x, A.type, A.nb[0], A.nb[1], row, rows, from, depth);
    load_part(right, y, B.type, B.nb[0], B.nb[1], column, columns, from, depth);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          sum[i][j] = fmaf(left[k][tx + 16 * i], right[k][ty + 16 * j], sum[i][j]);
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 4; ++i)
      if (row + tx + 16 * i < rows && column + ty + 16 * j < columns)
        store(d + bytes_to(D, row + tx + 16 * i, column + ty + 16 * j, i2, i3), D.type, sum[i][j]);
}
