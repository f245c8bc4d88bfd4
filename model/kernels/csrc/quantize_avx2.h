// One block of activations to int8, in registers: also for kernels that have the values there already (norms, gates).
#pragma once
#include <immintrin.h>

#include "kvell.h"

namespace kvell::avx2 {

inline int32_t sum_of(__m128i four) {
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

inline __m128i fold(__m256i eight) {
  return _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
}

// x0..x3: columns 0..7, 8..15, 16..23, 24..31.
inline void quantize_block(__m256 x0, __m256 x1, __m256 x2, __m256 x3, kvell_block& out) {
  // Magnitudes are compared as integers, which puts NaN above infinity instead of losing it.
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const auto bits = [&](__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), magnitude); };
  const __m256i m = _mm256_max_epi32(_mm256_max_epi32(bits(x0), bits(x1)), _mm256_max_epi32(bits(x2), bits(x3)));
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(most));

  auto* codes = reinterpret_cast<__m256i*>(out.codes);
  if (_mm_cvtsi128_si32(most) >= 0x7f800000 || largest < 0x1p-100f) {
    const float same = largest < 0x1p-100f ? 0.0f : __builtin_nanf("");
    _mm256_storeu_si256(codes, _mm256_setzero_si256());
    out.scale = out.sum = out.low = out.high = same;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  const auto code = [&](__m256 x) { return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse)); };
  const __m256i c0 = code(x0), c1 = code(x1), c2 = code(x2), c3 = code(x3);
  // Packing works within 128-bit halves; the permutation puts the groups of four back into order.
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c0, c1), _mm256_packs_epi32(c2, c3));
  _mm256_storeu_si256(codes, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  const int32_t low = sum_of(fold(_mm256_add_epi32(c0, c1))), high = sum_of(fold(_mm256_add_epi32(c2, c3)));
  out.scale = largest / 127.0f;
  out.low = out.scale * static_cast<float>(low);
  out.high = out.scale * static_cast<float>(high);
  out.sum = out.scale * static_cast<float>(low + high);
}

}  // namespace kvell::avx2
