// Eight float lanes in one AVX2 register. Same names and same bits as lanes_plain.h, which says what each means.
//
// Included by lanes.h only, inside its anonymous namespace.

struct F8 {
  __m256 v;
};

inline F8 splat(float x) { return {_mm256_set1_ps(x)}; }
inline F8 load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline F8 add(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F8 sub(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F8 mul(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F8 div(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline F8 max(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline F8 min(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline F8 absolute(F8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }

inline __m256i lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline __m256i first_lanes(int64_t n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(n)), lane_numbers()); }

inline F8 choose_between(int32_t base, int32_t first, int32_t end, F8 a, F8 b) {
  const __m256i at = _mm256_add_epi32(_mm256_set1_epi32(base), lane_numbers());
  const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32(first), at);
  const __m256i inside = _mm256_andnot_si256(before, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), at));
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(inside))};
}
inline F8 times_power_of_two(F8 p, F8 shifted) {
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.v), power))};
}
inline F8 zero_below(F8 x, F8 limit, F8 a) {
  const __m256 kept = _mm256_andnot_ps(_mm256_cmp_ps(x.v, limit.v, _CMP_LT_OQ), a.v);
  return {_mm256_blendv_ps(kept, x.v, _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q))};
}

inline void store(float* to, F8 a) { _mm256_storeu_ps(to, a.v); }
inline F8 load_part(const float* from, int64_t n) { return {_mm256_maskload_ps(from, first_lanes(n))}; }
inline void store_part(float* to, F8 a, int64_t n) { _mm256_maskstore_ps(to, first_lanes(n), a.v); }

inline float sum(F8 a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float largest(F8 a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

inline F8 load(const Bf16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i* >(from));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
inline F8 load(const int8_t* from) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i* >(from));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes))};
}
inline void store(Bf16* to, F8 a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i strange = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, strange), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x88);
  _mm_storeu_si128(reinterpret_cast<__m128i* >(to), _mm256_castsi256_si128(packed));
}
inline void store(int8_t* to, F8 a) {
  const __m256i whole = _mm256_castps_si256(_mm256_add_ps(a.v, _mm256_set1_ps(kWhole)));
  const __m256i low = _mm256_and_si256(whole, _mm256_set1_epi32(0xff));
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x88);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_castsi256_si128(halves));
  _mm_storel_epi64(reinterpret_cast<__m128i* >(to), bytes);
}
inline bool all_finite(F8 a) {
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  const __m256i mine = _mm256_and_si256(_mm256_castps_si256(a.v), exponent);
  return _mm256_testz_si256(_mm256_cmpeq_epi32(mine, exponent), _mm256_set1_epi32(-1));
}

inline void transpose(F8 rows[8]) {
  __m256 a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(rows[2 * i].v, rows[2 * i + 1].v);
    a[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i].v, rows[2 * i + 1].v);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    rows[i + 4].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}
