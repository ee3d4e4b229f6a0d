// Owns the random numbers of tests: small, fast and the same on every machine for the same seed.
#pragma once

#include <cstdint>
#include <random>

namespace lathe::verification {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  // In [0, count).
  int below(int count) { return static_cast<int>(bits() % static_cast<std::uint64_t>(count)); }
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(bits() >> 40) * 0x1p-24f;
  }
  // About normal, variance 1: a sum of four uniform numbers.
  float normal() {
    const std::uint64_t b = bits();
    const int sum =
        static_cast<int>((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48)) -
        131070;
    return static_cast<float>(sum) * 2.6429e-5f;
  }

 private:
  std::uint64_t state_;
};

// A seed that differs from run to run; tests print it with every failure.
inline std::uint64_t fresh_seed() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

}  // namespace lathe::verification
