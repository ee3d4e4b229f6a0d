// Owns softmax over rows, a block for each. b: the mask, c: a sink for each head. N: whether there
// is a mask, whether there are sinks, the greatest power of two among the heads. R: scale, and
// ALiBi's two bases (0: none).
KERNEL(soft_max) {
  const Place row = place(D, blockIdx.x * (u32)D.ne[0]);
  const u8* from = a + bytes_to(A, row);
  u8* to = d + bytes_to(D, row);
  const u8* mask = b + bytes_to(B, 0, row.i1, row.i2 % (u32)B.ne[2], row.i3 % (u32)B.ne[3]);
  const int head = (int)row.i2;
  const float slope = R[1] == 0.0f  ? 1.0f
                      : head < N[2] ? powf(R[1], (float)(head + 1))
                                    : powf(R[2], (float)(2 * (head - N[2]) + 1));
  const u32 count = (u32)D.ne[0];
  const float sink = N[1] ? *(const float*)(c + 4 * head) : 0.0f;
  float greatest = N[1] ? sink : -3.0e38f;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    float x = *(const float*)(from + i * A.nb[0]) * R[0];
    if (N[0]) x += slope * load(mask + i * B.nb[0], B.type);
    greatest = fmaxf(greatest, x);
  }
  greatest = block_max(greatest);
  float sum = 0;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    float x = *(const float*)(from + i * A.nb[0]) * R[0];
    if (N[0]) x += slope * load(mask + i * B.nb[0], B.type);
    x = expf(x - greatest);
    sum += x;
    *(float*)(to + i * D.nb[0]) = x;
  }
  sum = block_sum(sum);
  if (N[1]) sum += expf(sink - greatest);
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) *(float*)(to + i * D.nb[0]) /= sum;
}
