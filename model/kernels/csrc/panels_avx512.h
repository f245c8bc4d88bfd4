// The words of panels.h with AVX-512 and VNNI: two panels side by side, one instruction multiplies 4 columns of 16 rows.
// It wants unsigned bytes on one side, so the sign of an 8-bit weight moves to the activation first (which is never
// -128).
#pragma once
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC 12's own header: its bug 105593
#endif
#include <immintrin.h>

#include "layout.h"

namespace {

using namespace kvell;

constexpr int kSide = 2, kTokens = 6;

struct Side {
  const uint8_t* at[kSide];
  Side operator+(int64_t bytes) const { return {{at[0] + bytes, at[1] + bytes}}; }
};
struct Rows {
  __m512 v;
};
struct Sums {
  __m512i v;
};

inline Rows fill(float x) { return {_mm512_set1_ps(x)}; }
inline Rows times(Rows a, Rows b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Rows plus_times(Rows a, Rows b, Rows c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Rows to_floats(Sums sums) { return {_mm512_cvtepi32_ps(sums.v)}; }
inline void put(Rows rows, float* to, int n) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << n) - 1), rows.v);
}

// 32 bytes of each panel, 16 bytes of each panel.
inline __m512i both(Side side) {
  const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(side.at[0]));
  const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(side.at[1]));
  return _mm512_inserti64x4(_mm512_castsi256_si512(left), right, 1);
}
inline Rows halves(Side side) {
  const __m128i left = _mm_loadu_si128(reinterpret_cast<const __m128i*>(side.at[0]));
  const __m128i right = _mm_loadu_si128(reinterpret_cast<const __m128i*>(side.at[1]));
  return {_mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(left), right, 1))};
}
inline Rows floats(Side side) { return {_mm512_castsi512_ps(both(side))}; }
inline Rows scales(Side side, int bytes) { return bytes == 2 ? halves(side) : floats(side); }

template <int KIND>
inline Rows column(Side side, int64_t c) {
  if constexpr (KIND == KVELL_F32) return floats(side + c * 32);
  if constexpr (KIND == KVELL_F16) return halves(side + c * 16);
  const __m512i pair = both(side + c / 2 * 32);  // bfloat16: both columns of it in one 32-bit lane
  if (c % 2 == 0) return {_mm512_castsi512_ps(_mm512_slli_epi32(pair, 16))};
  return {_mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

template <int KIND>
inline __m512i code_register(Side block, int j) {
  if constexpr (KIND != KVELL_U4) return both(block + j * 32);
  const __m512i pair = both(block + j % 4 * 32);
  return _mm512_and_si512(j < 4 ? pair : _mm512_srli_epi16(pair, 4), _mm512_set1_epi8(15));
}

inline __m512i four_codes(const int8_t* codes) {
  int32_t four;
  std::memcpy(&four, codes, 4);
  return _mm512_set1_epi32(four);
}

template <int KIND, int TOKENS>
inline void add_products(Side block, int from, int to, const kvell_block* x, int64_t stride, Sums (&sums)[TOKENS]) {
  for (int j = from; j < to; ++j) {
    const __m512i weights = code_register<KIND>(block, j);
    if constexpr (KIND == KVELL_S8) {
      const __m512i magnitude = _mm512_abs_epi8(weights);
      const __mmask64 negative = _mm512_movepi8_mask(weights);
      for (int t = 0; t < TOKENS; ++t) {
        const __m512i four = four_codes(x[t * stride].codes + 4 * j);
        const __m512i turned = _mm512_mask_sub_epi8(four, negative, _mm512_setzero_si512(), four);
        sums[t].v = _mm512_dpbusd_epi32(sums[t].v, magnitude, turned);
      }
    } else {
      for (int t = 0; t < TOKENS; ++t)
        sums[t].v = _mm512_dpbusd_epi32(sums[t].v, weights, four_codes(x[t * stride].codes + 4 * j));
    }
  }
}

}  // namespace
