// 16-bit floats by hand, for code that runs on any processor. Both directions are exact or round to nearest even.
#pragma once
#include <cstdint>
#include <cstring>

namespace kvell {

static inline float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// IEEE binary16 -> float32. Subnormals are scaled up as integers: m * 2^-24 is exact. Signalling NaNs become quiet, as
// the processors' own conversions make them.
static inline float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ffu;
  if (exponent == 31) return from_bits(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
  if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  return from_bits(sign | to_bits(static_cast<float>(mantissa) * 0x1p-24f));
}

// float32 -> binary16, for values that binary16 represents (and rounding to nearest even for all others).
static inline uint16_t to_half(float value) {
  const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return static_cast<uint16_t>(sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0));
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the multiples of 2^-24 in the low bits
    return static_cast<uint16_t>(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
  return static_cast<uint16_t>(sign | (rounded < 0x7c00u ? rounded : 0x7c00u));
}

static inline float from_bfloat(uint16_t upper) { return from_bits(uint32_t{upper} << 16); }

}  // namespace kvell
