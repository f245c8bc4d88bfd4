// The AVX2 micro-kernel of the integer product: 8 or 16 rows x 1 to 4 tokens x any number of blocks.
//
//               token 0   token 1   token 2   token 3        Per block, register j of a panel (4 columns of 8 rows) is
//   panel 0     acc 00    acc 01    acc 02    acc 03         multiplied with the token's 4 codes, broadcast; a pair of
//   (8 rows)                                                 products is one 16-bit lane. The lanes of a token add up
//   panel 1     acc 10    acc 11    acc 12    acc 13         over as many registers as can't overflow, then are widened
//   (8 rows)                                                 to one 32-bit sum for each row, converted, and go into the
//                                                            float accumulator with one multiply-add (two with offsets).
//
// How many registers add up in 16 bits: |sum| <= registers * 2 * code * 127 < 2^15, so 8 of 4-bit codes, 4 of 5-bit ones,
// 2 of 6-bit ones. Signed bytes allow one, and since maddubs wants its first operand unsigned, the sign of the weight moves
// to the activation first (which is never -128).
//
// Weights come from a Source: Packed unpacks on the way, for few tokens; Unpacked reads what `unpack` has prepared.
#pragma once
#include <immintrin.h>

#include <array>

#include "kernels.h"
#include "layout.h"

namespace kvell::avx2 {

// A block of one panel as the micro-kernel likes it best.
template <int GROUPS>
struct alignas(32) Wide {
  uint8_t codes[8][32];
  float scales[GROUPS][8], offsets[GROUPS][8];
};

template <int KIND>
inline __m256i code_register(const uint8_t* block, int j) {
  if constexpr (KIND == KVELL_U4) {
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + j % 4 * 32));
    return _mm256_and_si256(j < 4 ? pair : _mm256_srli_epi16(pair, 4), mask);
  } else {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + j * 32));
  }
}

inline __m256 eight_scales(const uint8_t* at, int scale_bytes) {
  if (scale_bytes == 2) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
}

// Weights that a micro-kernel fetches from memory while it multiplies others: a little of each of two panels for every block.
struct Ahead {
  const char *first = nullptr, *second = nullptr;
  int64_t step = 0;  // bytes of each for a block

  void next() {
    for (int64_t byte = 0; byte < step; byte += 64) {
      _mm_prefetch(first + byte, _MM_HINT_T0);
      _mm_prefetch(second + byte, _MM_HINT_T0);
    }
    first += step;
    second += step;
  }
};

// A panel as it is stored.
template <int KIND, int GROUPS>
struct Packed {
  const uint8_t* at;
  int stride, scale_bytes, offset;
  float zero;

  Packed(const kvell_matrix& m, int64_t panel, int block)
      : at(block_at(m, panel, block)), stride(block_bytes(m)), scale_bytes(m.scale_bytes), offset(m.offset),
        zero(m.zero) {}

  __m256i codes(int j) const { return code_register<KIND>(at, j); }
  __m256 scales(int group) const { return eight_scales(at + code_bytes(KIND) + group * 8 * scale_bytes, scale_bytes); }
  bool has_offset() const { return offset != KVELL_NO_OFFSET; }
  __m256 offsets(int group) const {
    if (offset == KVELL_IMPLIED) return _mm256_mul_ps(_mm256_set1_ps(-zero), scales(group));
    return eight_scales(at + code_bytes(KIND) + (GROUPS + group) * 8 * scale_bytes, scale_bytes);
  }
  void next() { at += stride; }
  // Panels lie one behind the other, so what comes next is always ahead, across panels and pages, where the hardware's
  // own prefetching stops. 4 kB is some 0.2 microseconds, a little more than memory takes to answer.
  void prefetch_ahead() const {
    constexpr int AHEAD = 4096;
    for (int line = 0; line < code_bytes(KIND); line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(at) + AHEAD + line, _MM_HINT_T0);
  }
};

template <int KIND, int GROUPS>
struct Unpacked {
  const Wide<GROUPS>* at;
  bool offset;

  __m256i codes(int j) const { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at->codes[j])); }
  __m256 scales(int group) const { return _mm256_load_ps(at->scales[group]); }
  bool has_offset() const { return offset; }
  __m256 offsets(int group) const { return _mm256_load_ps(at->offsets[group]); }
  void next() { ++at; }
  void prefetch_ahead() const {}
};

template <int KIND, int GROUPS>
void unpack(const kvell_matrix& m, int64_t panel, int first_block, int count, Wide<GROUPS>* out) {
  for (Packed<KIND, GROUPS> from(m, panel, first_block); count > 0; --count, from.next(), ++out) {
    for (int j = 0; j < 8; ++j) _mm256_store_si256(reinterpret_cast<__m256i*>(out->codes[j]), from.codes(j));
    for (int group = 0; group < GROUPS; ++group) {
      _mm256_store_ps(out->scales[group], from.scales(group));
      if (from.has_offset()) _mm256_store_ps(out->offsets[group], from.offsets(group));
    }
  }
}

template <int KIND>
constexpr int chain() {
  return KIND == KVELL_U4 ? 8 : KIND == KVELL_U5 ? 4 : KIND == KVELL_U6 ? 2 : 1;
}

inline __m256i four_codes(const int8_t* codes) {
  int32_t four;
  __builtin_memcpy(&four, codes, 4);
  return _mm256_set1_epi32(four);
}

template <int KIND>
inline __m256i products(__m256i weights, __m256i x) {
  if constexpr (KIND == KVELL_S8) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
  } else {
    return _mm256_maddubs_epi16(weights, x);
  }
}

// Where one panel's results go: 8 of them, or fewer at the matrix's last row.
struct Lanes {
  float* at;
  __m256i mask;
  bool all;

  Lanes(float* where, int rows) : at(where), all(rows >= 8) {
    mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(rows), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  __m256 load(int64_t shift) const { return all ? _mm256_loadu_ps(at + shift) : _mm256_maskload_ps(at + shift, mask); }
  void store(int64_t shift, __m256 value) const {
    if (all) {
      _mm256_storeu_ps(at + shift, value);
    } else {
      _mm256_maskstore_ps(at + shift, mask, value);
    }
  }
};

// Says that the value is needed in a register at this very place. Without it the compiler computes products far ahead of
// their additions, runs out of registers, and sends half of them through memory.
template <typename Register>
inline void keep_here(Register& value) {
  __asm__("" : "+x"(value));
}

// Adds `depth` blocks to the outputs of PANELS panels and TOKENS tokens, whose blocks are x_stride apart.
template <int KIND, int GROUPS, int PANELS, int TOKENS, typename Source>
inline void micro(std::array<Source, PANELS> w, int depth, const kvell_block* x, int64_t x_stride, const Lanes* out,
                  int64_t out_stride, bool first, Ahead ahead) {
  constexpr int REGISTERS = 8 / GROUPS, CHAIN = chain<KIND>() < REGISTERS ? chain<KIND>() : REGISTERS;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 acc[PANELS][TOKENS];
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 2
    for (int p = 0; p < PANELS; ++p) acc[p][t] = first ? _mm256_setzero_ps() : out[p].load(t * out_stride);

  for (int block = 0; block < depth; ++block, ++x) {
#pragma GCC unroll 2
    for (int group = 0; group < GROUPS; ++group) {
      __m256i sums[PANELS][TOKENS];
#pragma GCC unroll 8
      for (int start = 0; start < REGISTERS; start += CHAIN) {
        __m256i pairs[PANELS][TOKENS];
#pragma GCC unroll 8
        for (int j = 0; j < CHAIN; ++j) {
          const int index = group * REGISTERS + start + j;
          __m256i weights[PANELS];
#pragma GCC unroll 2
          for (int p = 0; p < PANELS; ++p) weights[p] = w[p].codes(index);
#pragma GCC unroll 4
          for (int t = 0; t < TOKENS; ++t) {
            const __m256i four = four_codes(x[t * x_stride].codes + 4 * index);
#pragma GCC unroll 2
            for (int p = 0; p < PANELS; ++p) {
              const __m256i pair = products<KIND>(weights[p], four);
              pairs[p][t] = j == 0 ? pair : _mm256_add_epi16(pairs[p][t], pair);
              keep_here(pairs[p][t]);
            }
          }
        }
#pragma GCC unroll 4
        for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 2
          for (int p = 0; p < PANELS; ++p) {
            const __m256i wide = _mm256_madd_epi16(pairs[p][t], ones);
            sums[p][t] = start == 0 ? wide : _mm256_add_epi32(sums[p][t], wide);
            if constexpr (CHAIN < REGISTERS) keep_here(sums[p][t]);
          }
      }
#pragma GCC unroll 2
      for (int p = 0; p < PANELS; ++p) {
        const __m256 scales = w[p].scales(group);
#pragma GCC unroll 4
        for (int t = 0; t < TOKENS; ++t) {
          const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(x[t * x_stride].scale));
          acc[p][t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[p][t]), acc[p][t]);
        }
        if (w[p].has_offset()) {
          const __m256 offsets = w[p].offsets(group);
#pragma GCC unroll 4
          for (int t = 0; t < TOKENS; ++t) {
            const kvell_block& b = x[t * x_stride];
            const float sum = GROUPS == 1 ? b.sum : group == 0 ? b.low : b.high;
            acc[p][t] = _mm256_fmadd_ps(offsets, _mm256_set1_ps(sum), acc[p][t]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < PANELS; ++p) {
      w[p].next();
      w[p].prefetch_ahead();
    }
    ahead.next();
  }
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 2
    for (int p = 0; p < PANELS; ++p) out[p].store(t * out_stride, acc[p][t]);
}

}  // namespace kvell::avx2
