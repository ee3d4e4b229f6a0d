// Owns what is made of whole rows, a block for each: the place of the greatest value, the sum.
KERNEL(argmax) {
  const Place row = place(A, blockIdx.x * (u32)A.ne[0]);
  const u8* from = a + bytes_to(A, row);
  float greatest = -3.4e38f;
  for (u32 i = threadIdx.x; i < (u32)A.ne[0]; i += blockDim.x)
    greatest = fmaxf(greatest, load(from + i * A.nb[0], A.type));
  greatest = block_max(greatest);
  float first = -3.4e38f;  // minus the place, which is exact up to 2^24
  for (u32 i = threadIdx.x; i < (u32)A.ne[0]; i += blockDim.x)
    if (load(from + i * A.nb[0], A.type) == greatest) first = fmaxf(first, -(float)i);
  first = block_max(first);
  if (threadIdx.x == 0) *(int*)(d + blockIdx.x * 4) = first < -1.7e7f ? 0 : (int)-first;
}

KERNEL(sum_rows) {
  const Place row = place(A, blockIdx.x * (u32)A.ne[0]);
  const u8* from = a + bytes_to(A, row);
  float sum = 0;
  for (u32 i = threadIdx.x; i < (u32)A.ne[0]; i += blockDim.x)
    sum += load(from + i * A.nb[0], A.type);
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    *(float*)(d + bytes_to(D, 0, row.i1, row.i2, row.i3)) = N[0] ? sum / (float)A.ne[0] : sum;
}
