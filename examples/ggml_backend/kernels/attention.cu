// Owns attention of one query and head, a block for each: every warp goes over its share of the
// keys with a running softmax, then the warps' results are merged. a: queries, b: keys, c: values,
// m: the mask, s: a sink for each head. N: whether there is a mask, whether there are sinks, the
// greatest power of two among the heads. R: scale, ALiBi's two bases (0: none), the soft cap of
// scores (0: none).
// kMost: the longest head, 512 values, in warps.
enum { kWarps = 8, kTogether = 4, kMost = 16 };

KERNEL(attention) {
  __shared__ float peaks[kWarps], sums[kWarps];
  __shared__ float merged[kWarps][kMost * 32];
  const u32 queries = (u32)A.ne[1], heads = (u32)A.ne[2], keys = (u32)B.ne[1];
  const u32 i1 = blockIdx.x % queries, i2 = blockIdx.x / queries % heads,
            i3 = blockIdx.x / queries / heads;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u8* query = a + bytes_to(A, 0, i1, i2, i3);
  const u8* key = b + bytes_to(B, 0, 0, i2 / (heads / (u32)B.ne[2]), i3 / (u32)(A.ne[3] / B.ne[3]));
  const u8* value =
      c + bytes_to(C, 0, 0, i2 / (heads / (u32)C.ne[2]), i3 / (u32)(A.ne[3] / C.ne[3]));
  const u8* mask = m + bytes_to(M, 0, i1, i2 % (u32)M.ne[2], i3 % (u32)M.ne[3]);
  const float slope = R[1] == 0.0f     ? 1.0f
                      : (int)i2 < N[2] ? powf(R[1], (float)(i2 + 1))
                                       : powf(R[2], (float)(2 * ((int)i2 - N[2]) + 1));
  const int key_parts = (int)((A.ne[0] + 31) / 32), value_parts = (int)((C.ne[0] + 31) / 32);
  float q[kMost], sum = 0, peak = -1.0e30f, out[kMost] = {};
  for (int j = 0; j < key_parts; ++j) {
    const u32 at = lane + 32 * j;
    q[j] = at < (u32)A.ne[0] ? load(query + at * A.nb[0], A.type) * R[0] : 0.0f;
  }
  for (u32 first = warp * kTogether; first < keys; first += kWarps * kTogether) {
    float score[kTogether];
    for (int t = 0; t < kTogether; ++t) {
      const u32 at = first + t < keys ? first + t : keys - 1;
      float dot = 0;
      for (int j = 0; j < key_parts; ++j)
        if (lane + 32 * j < (u32)A.ne[0])
          dot = fmaf(q[j], load(key + at * B.nb[1] + (lane + 32 * j) * B.nb[0], B.type), dot);
      score[t] = dot;
    }
    float highest = peak;
    for (int t = 0; t < kTogether; ++t) {
      score[t] = warp_sum(score[t]);
      if (R[3] != 0.0f) score[t] = R[3] * tanhf(score[t]);
      const u32 at = first + t;
      if (at >= keys)
        score[t] = -3.0e38f;
      else if (N[0])
        score[t] = fmaxf(score[t] + slope * load(mask + at * M.nb[0], M.type), -3.0e38f);
      highest = fmaxf(highest, score[t]);
    }
    const float less = expf(peak - highest);
    peak = highest;
    sum *= less;
    for (int j = 0; j < value_parts; ++j) out[j] *= less;
    for (int t = 0; t < kTogether; ++t) {
      const u32 at = first + t < keys ? first + t : keys - 1;
      const float weight = expf(score[t] - peak);
      sum += weight;
      for (int j = 0; j < value_parts; ++j)
        if (lane + 32 * j < (u32)C.ne[0])
          out[j] =
              fmaf(weight, load(value + at * C.nb[1] + (lane + 32 * j) * C.nb[0], C.type), out[j]);
    }
  }
  if (lane == 0) {
    peaks[warp] = peak;
    sums[warp] = sum;
  }
  for (int j = 0; j < value_parts; ++j) merged[warp][lane + 32 * j] = out[j];
  __syncthreads();
  const float sink = N[1] ? *(const float*)(s + 4 * i2) : 0.0f;
  float top = N[1] ? sink : -1.0e30f;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, peaks[w]);
  float total = N[1] ? expf(sink - top) : 0.0f;
  for (int w = 0; w < kWarps; ++w) total += sums[w] * expf(peaks[w] - top);
  for (u32 at = threadIdx.x; at < (u32)C.ne[0]; at += blockDim.x) {
    float result = 0;
    for (int w = 0; w < kWarps; ++w) result = fmaf(merged[w][at], expf(peaks[w] - top), result);
    // The result has its heads before its queries.
    store(d + bytes_to(D, at, i2, i1, i3), D.type, total == 0.0f ? 0.0f : result / total);
  }
}
