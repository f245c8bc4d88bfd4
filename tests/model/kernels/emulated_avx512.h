// The AVX-512 instructions of model/kernels/csrc/panels_avx512.h, spelled out after Intel's manual (volume 2, "Operation" of
// each), so that those kernels run on any x86 processor with AVX2. Only `make test-avx512` includes this, before the
// kernels' own includes; <immintrin.h> is read first, and from then on the names mean these functions.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace emulated {

// 512 bits, whichever way one looks at them.
struct Register {
  uint8_t bytes[64];

  template <typename Number>
  Number get(int i) const {
    Number number;
    std::memcpy(&number, bytes + static_cast<size_t>(i) * sizeof(Number), sizeof(Number));
    return number;
  }
  template <typename Number>
  void set(int i, Number number) {
    std::memcpy(bytes + static_cast<size_t>(i) * sizeof(Number), &number, sizeof(Number));
  }
};
struct Integers : Register {};
struct Floats : Register {};

template <typename Number, typename Result, typename Lane>
Result each(Lane&& lane) {
  Result result;
  for (int i = 0; i < static_cast<int>(64 / sizeof(Number)); ++i) result.template set<Number>(i, lane(i));
  return result;
}

inline bool has(const char* feature) {
  if (std::strncmp(feature, "avx512", 6) == 0) return true;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

inline Floats set1_ps(float x) {
  return each<float, Floats>([&](int) { return x; });
}
inline Integers set1_epi32(int x) {
  return each<int32_t, Integers>([&](int) { return x; });
}
inline Integers set1_epi8(char x) {
  return each<int8_t, Integers>([&](int) { return static_cast<int8_t>(x); });
}
inline Integers zero() { return set1_epi32(0); }
inline Floats mul_ps(Floats a, Floats b) {
  return each<float, Floats>([&](int i) { return a.get<float>(i) * b.get<float>(i); });
}
inline Floats fmadd_ps(Floats a, Floats b, Floats c) {
  return each<float, Floats>([&](int i) { return std::fmaf(a.get<float>(i), b.get<float>(i), c.get<float>(i)); });
}
inline Floats cvtepi32_ps(Integers a) {
  return each<float, Floats>([&](int i) { return static_cast<float>(a.get<int32_t>(i)); });
}
inline Floats cvtph_ps(__m256i halves) {  // F16C's instruction, eight at a time
  alignas(32) uint16_t all[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(all), halves);
  Floats result;
  for (int i = 0; i < 2; ++i) {
    const __m256 eight = _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(all + 8 * i)));
    std::memcpy(result.bytes + 32 * i, &eight, 32);
  }
  return result;
}
inline void mask_storeu_ps(void* to, __mmask16 mask, Floats a) {
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) std::memcpy(static_cast<float*>(to) + i, a.bytes + 4 * i, 4);
}

// The upper half is not defined: whoever used it would see this.
inline Integers castsi256_si512(__m256i a) {
  Integers result = set1_epi8(0x5a);
  std::memcpy(result.bytes, &a, 32);
  return result;
}
inline Integers inserti64x4(Integers a, __m256i b, int at) {
  std::memcpy(a.bytes + 32 * at, &b, 32);
  return a;
}
inline Floats castsi512_ps(Integers a) {
  Floats result;
  std::memcpy(result.bytes, a.bytes, 64);
  return result;
}
inline Integers and_si512(Integers a, Integers b) {
  return each<uint8_t, Integers>([&](int i) { return static_cast<uint8_t>(a.bytes[i] & b.bytes[i]); });
}
inline Integers slli_epi32(Integers a, unsigned by) {
  return each<uint32_t, Integers>([&](int i) { return a.get<uint32_t>(i) << by; });
}
inline Integers srli_epi16(Integers a, unsigned by) {
  return each<uint16_t, Integers>([&](int i) { return static_cast<uint16_t>(a.get<uint16_t>(i) >> by); });
}
inline Integers abs_epi8(Integers a) {  // of -128 it is 128, as an unsigned byte
  return each<uint8_t, Integers>([&](int i) { return static_cast<uint8_t>(std::abs(a.get<int8_t>(i))); });
}
inline __mmask64 movepi8_mask(Integers a) {
  __mmask64 mask = 0;
  for (int i = 0; i < 64; ++i) mask |= static_cast<__mmask64>(a.bytes[i] >> 7) << i;
  return mask;
}
inline Integers mask_sub_epi8(Integers otherwise, __mmask64 mask, Integers a, Integers b) {
  return each<uint8_t, Integers>([&](int i) {
    return mask >> i & 1 ? static_cast<uint8_t>(a.bytes[i] - b.bytes[i]) : otherwise.bytes[i];
  });
}
// Four products of an unsigned and a signed byte onto each 32-bit number, without saturation.
inline Integers dpbusd_epi32(Integers sums, Integers a, Integers b) {
  return each<int32_t, Integers>([&](int i) {
    int32_t sum = sums.get<int32_t>(i);
    for (int j = 4 * i; j < 4 * i + 4; ++j) sum += int{a.bytes[j]} * int{b.get<int8_t>(j)};
    return sum;
  });
}

}  // namespace emulated

#define __builtin_cpu_supports(feature) ::emulated::has(feature)
#define __m512 ::emulated::Floats
#define __m512i ::emulated::Integers
#define _mm512_set1_ps ::emulated::set1_ps
#define _mm512_set1_epi32 ::emulated::set1_epi32
#define _mm512_set1_epi8 ::emulated::set1_epi8
#define _mm512_setzero_si512 ::emulated::zero
#define _mm512_mul_ps ::emulated::mul_ps
#define _mm512_fmadd_ps ::emulated::fmadd_ps
#define _mm512_cvtepi32_ps ::emulated::cvtepi32_ps
#define _mm512_cvtph_ps ::emulated::cvtph_ps
#define _mm512_mask_storeu_ps ::emulated::mask_storeu_ps
#define _mm512_castsi256_si512 ::emulated::castsi256_si512
#undef _mm512_inserti64x4
#define _mm512_inserti64x4 ::emulated::inserti64x4
#define _mm512_castsi512_ps ::emulated::castsi512_ps
#define _mm512_and_si512 ::emulated::and_si512
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 ::emulated::slli_epi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 ::emulated::srli_epi16
#define _mm512_abs_epi8 ::emulated::abs_epi8
#define _mm512_movepi8_mask ::emulated::movepi8_mask
#define _mm512_mask_sub_epi8 ::emulated::mask_sub_epi8
#define _mm512_dpbusd_epi32 ::emulated::dpbusd_epi32
