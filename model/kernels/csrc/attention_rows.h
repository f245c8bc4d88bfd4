// Keys and values where they lie in the paged cache, and how they become floats in registers.
//
// Scores want a register to hold one number d of 8 positions, the cache has 8 numbers of one position: `Turned` takes 8
// numbers of 16 positions and gives them back the other way round.
//
//     cache            position 0: k0 k1 k2 ...         turned    d 0: k0 of position 0 .. 7, of 8 .. 15
//     (Hkv rows apart) position 1: k0 k1 k2 ...    ->             d 1: k1 of position 0 .. 7, of 8 .. 15
//                      ...                                        ...
//
// Positions that no query of the item sees are never touched: what lies there may be stale, another sequence's, or no
// number at all.
#pragma once

#include "attention.h"
#include "cpu.h"
#include "lanes.h"

namespace {

using namespace kvell;

template <class Stored>
inline F8 widen(const Stored* from, int64_t n, float scale) {
  const F8 x = n >= 8 ? load(from) : load_part(from, n);
  return sizeof(Stored) == 1 ? mul(x, splat(scale)) : x;
}

// Keys or values of one KV head. A slot is block * block_size + position % block_size.
template <class Stored>
struct CacheHead {
  const Stored* first;  // of slot 0
  const float* scales;  // likewise; null unless Stored is int8
  int64_t stride, scale_stride, head_dim;

  CacheHead(const void* pool, const float* pool_scales, const kvell_attention& call, int64_t head)
      : first(static_cast<const Stored*>(pool) + head * call.head_dim),
        scales(pool_scales ? pool_scales + head : nullptr),
        stride(int64_t(call.num_kv_heads) * call.head_dim), scale_stride(call.num_kv_heads), head_dim(call.head_dim) {}

  const Stored* row(int64_t slot) const { return first + slot * stride; }
  float scale(int64_t slot) const { return sizeof(Stored) == 1 ? scales[slot * scale_stride] : 1.0f; }
  void fetch(int64_t slot) const {
    const char* at = reinterpret_cast<const char*>(row(slot));
    for (int64_t byte = 0; byte < head_dim * int64_t(sizeof(Stored)); byte += 64) prefetch(at + byte);
  }
};

// Sixteen rows of keys, side by side.
template <class Stored>
struct Panel {
  const Stored* rows[kPanel];
  float scales[kPanel];

  // slots[i] of position i; only [low, high) is read, the others repeat one of these, to be masked.
  Panel(const CacheHead<Stored>& cache, const int64_t* slots, int64_t low, int64_t high) {
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t slot = slots[i < low ? low : i < high ? i : high - 1];
      rows[i] = cache.row(slot);
      scales[i] = cache.scale(slot);
    }
  }
};

// Numbers d .. d + 7 (the first n of them, if n < 8) of a panel.
template <class Stored>
struct Turned {
  F8 low[8], high[8];

  Turned(const Panel<Stored>& panel, int64_t d, int64_t n) {
    for (int i = 0; i < 8; ++i) {
      low[i] = widen(panel.rows[i] + d, n, panel.scales[i]);
      high[i] = widen(panel.rows[i + 8] + d, n, panel.scales[i + 8]);
    }
    transpose(low);
    transpose(high);
  }
  F8 left(int i) const { return low[i]; }    // number d + i of positions 0 .. 7
  F8 right(int i) const { return high[i]; }  // and 8 .. 15
};

#ifdef KVELL_LANES_AVX2
// The same for bfloat16 at half the price: turned as 16-bit numbers, widened by putting zeros below them.
template <>
struct Turned<Bf16> {
  __m256i both[8];  // number d + i; the halves hold positions 0-3 and 8-11, 4-7 and 12-15

  Turned(const Panel<Bf16>& panel, int64_t d, int64_t n) {
    const auto eight = [&](int position) {
      const Bf16* from = panel.rows[position] + d;
      if (n >= 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      Bf16 part[8] = {};
      memcpy(part, from, size_t(n) * sizeof(Bf16));
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(part));
    };
    __m256i a[8], b[8];
    for (int i = 0; i < 8; ++i) {
      const int position = i < 4 ? i : i + 4;
      a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(eight(position)), eight(position + 4), 1);
    }
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
      b[2 * i + 1] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      a[4 * i] = _mm256_unpacklo_epi32(b[4 * i], b[4 * i + 2]);
      a[4 * i + 1] = _mm256_unpackhi_epi32(b[4 * i], b[4 * i + 2]);
      a[4 * i + 2] = _mm256_unpacklo_epi32(b[4 * i + 1], b[4 * i + 3]);
      a[4 * i + 3] = _mm256_unpackhi_epi32(b[4 * i + 1], b[4 * i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      both[2 * i] = _mm256_unpacklo_epi64(a[i], a[i + 4]);
      both[2 * i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 4]);
    }
  }
  F8 left(int i) const { return {_mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), both[i]))}; }
  F8 right(int i) const { return {_mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), both[i]))}; }
};
#endif

// Keys as the wide tiles take them: (D, 16) floats.
template <class Stored>
void widen_keys(const Panel<Stored>& panel, int64_t head_dim, float* keys) {
  for (int64_t d = 0; d < head_dim; d += 8) {
    const Turned<Stored> turned(panel, d, head_dim - d);
    for (int i = 0; i < 8 && d + i < head_dim; ++i, keys += kPanel) {
      store(keys, turned.left(i));
      store(keys + 8, turned.right(i));
    }
  }
}

// Values as the wide tiles take them: (n, D padded with zeros to a multiple of 8) floats.
template <class Stored>
void widen_values(const CacheHead<Stored>& cache, const int64_t* slots, int64_t n, float* values) {
  const int64_t width = round_up(cache.head_dim, 8);
  for (int64_t i = 0; i < n; ++i, values += width) {
    const Stored* row = cache.row(slots[i]);
    const float scale = cache.scale(slots[i]);
    for (int64_t d = 0; d < width; d += 8) store(values + d, widen(row + d, cache.head_dim - d, scale));
  }
}

}  // namespace
