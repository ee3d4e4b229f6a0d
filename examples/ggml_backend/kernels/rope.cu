// Owns rotary position embedding, a thread for each pair. b: positions, c: frequency factors.
// N: values that rotate, whether pairs are halves apart, whether there are factors.
// R: factor from a pair's angle to the next one's, frequency scale, YaRN's extrapolation and
// attention factor, and where its ramp begins and ends.
KERNEL(rope) {
  const u32 index = global_thread();
  if (index >= elements(D) / 2) return;
  const Place at = place(D, 2 * index);
  const u32 pair = at.i0 / 2;
  const u32 rotated = (u32)N[0];
  const bool halves = N[1] != 0 && at.i0 < rotated;
  const u32 first = halves ? pair : at.i0;
  const u32 second = halves ? pair + rotated / 2 : at.i0 + 1;
  const float x = load(a + bytes_to(A, first, at.i1, at.i2, at.i3), A.type);
  const float y = load(a + bytes_to(A, second, at.i1, at.i2, at.i3), A.type);
  float sine = 0, cosine = 1;
  if (at.i0 < rotated) {
    float angle = (float)*(const int*)(b + at.i2 * B.nb[0]) * powf(R[0], (float)pair);
    if (N[2]) angle /= *(const float*)(c + pair * 4);
    float magnitude = R[3], theta = R[1] * angle;
    if (R[2] != 0.0f) {
      const float ramp = ((float)pair - R[4]) / fmaxf(0.001f, R[5] - R[4]);
      const float mix = (1.0f - fminf(1.0f, fmaxf(0.0f, ramp))) * R[2];
      theta = theta * (1.0f - mix) + angle * mix;
      magnitude *= 1.0f + 0.1f * logf(1.0f / R[1]);
    }
    sine = sinf(theta) * magnitude;
    cosine = cosf(theta) * magnitude;
  }
  store(d + bytes_to(D, first, at.i1, at.i2, at.i3), D.type, x * cosine - y * sine);
  store(d + bytes_to(D, second, at.i1, at.i2, at.i3), D.type, x * sine + y * cosine);
}
