// Owns products of matrices on the matrix units, D = B A^T with heads of A repeated: operands are
// rounded to 11 significant bits (tf32), sums are f32. A block has 128 rows and 64 columns, a warp
// 32 by 32 of them; 16 values of each go through shared memory at a time.
enum { kRows = 128, kColumns = 64, kDepth = 16, kPitch = kDepth + 4 };

#ifdef __CUDACC_RTC__
__device__ inline float rounded(float value) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return of_bits(bits);
}
// 16 rows by 8 values times 8 values by 8 columns.
__device__ inline void multiply(float* sum, const float* a, const float* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(to_bits(a[0])), "r"(to_bits(a[1])), "r"(to_bits(a[2])), "r"(to_bits(a[3])),
        "r"(to_bits(b[0])), "r"(to_bits(b[1])));
}
#endif

// Values of `kCount / 16` rows, from `first` on, that lie `from` values along them; zeros past the
// end.
template <int kCount>
__device__ inline void fetch(float* values, const u8* rows, int type, i64 along, i64 across,
                             u32 first, u32 count, u32 from, u32 depth) {
  for (int i = 0; i < kCount; ++i) {
    const u32 at = threadIdx.x + 256 * i, k = from + at % kDepth, row = first + at / kDepth;
    values[i] = row < count && k < depth ? load(rows + row * across + k * along, type) : 0.0f;
  }
}
template <int kCount>
__device__ inline void stage(float (*part)[kPitch], const float* values) {
  for (int i = 0; i < kCount; ++i) {
    const u32 at = threadIdx.x + 256 * i;
    part[at / kDepth][at % kDepth] = rounded(values[i]);
  }
}

KERNEL(rounded_product) {
  __shared__ float left[kRows][kPitch];
  __shared__ float right[kColumns][kPitch];
  const u32 rows = (u32)D.ne[0], columns = (u32)D.ne[1], depth = (u32)A.ne[0];
  const u32 row_blocks = (rows + kRows - 1) / kRows;
  const u32 row = blockIdx.x % row_blocks * kRows, column = blockIdx.x / row_blocks * kColumns;
  const u32 i2 = blockIdx.y % (u32)D.ne[2], i3 = blockIdx.y / (u32)D.ne[2];
  const u8* x = a + bytes_to(A, 0, 0, i2 / (u32)(D.ne[2] / A.ne[2]), i3 / (u32)(D.ne[3] / A.ne[3]));
  const u8* y = b + bytes_to(B, 0, 0, i2, i3);
  const u32 warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
  const u32 top = warp % 4 * 32, side = warp / 4 * 32;
  float sum[2][4][4] = {}, x_next[8], y_next[4];
  fetch<8>(x_next, x, A.type, A.nb[0], A.nb[1], row, rows, 0, depth);
  fetch<4>(y_next, y, B.type, B.nb[0], B.nb[1], column, columns, 0, depth);
  for (u32 from = 0; from < depth; from += kDepth) {
    stage<8>(left, x_next);
    stage<4>(right, y_next);
    __syncthreads();
    fetch<8>(x_next, x, A.type, A.nb[0], A.nb[1], row, rows, from + kDepth, depth);
    fetch<4>(y_next, y, B.type, B.nb[0], B.nb[1], column, columns, from + kDepth, depth);
    for (u32 k = place; k < kDepth; k += 8) {
      float p[2][4], q[4][2];
      for (u32 i = 0; i < 2; ++i)
        for (u32 j = 0; j < 4; ++j) p[i][j] = left[top + 16 * i + group + j % 2 * 8][k + j / 2 * 4];
      for (u32 i = 0; i < 4; ++i)
        for (u32 j = 0; j < 2; ++j) q[i][j] = right[side + 8 * i + group][k + 4 * j];
      for (u32 i = 0; i < 2; ++i)
        for (u32 j = 0; j < 4; ++j) multiply(sum[i][j], p[i], q[j]);
    }
    __syncthreads();
  }
  for (u32 i = 0; i < 2; ++i)
    for (u32 j = 0; j < 4; ++j)
      for (u32 n = 0; n < 4; ++n) {
        const u32 r = row + top + 16 * i + group + n / 2 * 8;
        const u32 c = column + side + 8 * j + 2 * place + n % 2;
        if (r < rows && c < columns) store(d + bytes_to(D, r, c, i2, i3), D.type, sum[i][j][n]);
      }
}
