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

  // Of the KV head that is `heads` further on.
  CacheHead head(int64_t heads) const {
    CacheHead other = *this;
    other.first += heads * head_dim;
    if (scales) other.scales += heads;
    return other;
  }
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
  const Stored* row(int i) const { return rows[i]; }
  float scale(int i) const { return scales[i]; }
};

// The same where sixteen positions lie in one block, a stride apart.
template <class Stored>
struct Strip {
  const Stored* first;
  const float* scales;
  int64_t stride, scale_stride;

  Strip(const CacheHead<Stored>& cache, int64_t slot)
      : first(cache.row(slot)), scales(sizeof(Stored) == 1 ? cache.scales + slot * cache.scale_stride : nullptr),
        stride(cache.stride), scale_stride(cache.scale_stride) {}
  // Not to be read, only to be fetched: the share of one of all KV heads in the memory that they have in common.
  static Strip share(const CacheHead<Stored>& all, int64_t slot, int64_t head) {
    Strip strip(all, slot);
    strip.first += head * kPanel * all.head_dim;
    strip.stride = all.head_dim;
    return strip;
  }
  const Stored* row(int64_t i) const { return first + i * stride; }
  float scale(int64_t i) const { return sizeof(Stored) == 1 ? scales[i * scale_stride] : 1.0f; }
  // From number d on. The compiler is kept from holding sixteen pointers through a loop: it has no registers for them.
  Strip from(int64_t d) const {
    Strip other = *this;
    other.first += d;
    forget(other.first);
    return other;
  }
};

// Numbers d .. d + 7 (the first n of them, if n < 8) of a panel.
template <class Stored>
struct Turned {
  F8 low[8], high[8];

  template <class Rows>
  Turned(const Rows& rows, int64_t d, int64_t n) {
    for (int i = 0; i < 8; ++i) {
      low[i] = widen(rows.row(i) + d, n, rows.scale(i));
      high[i] = widen(rows.row(i + 8) + d, n, rows.scale(i + 8));
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

  template <class Rows>
  Turned(const Rows& rows, int64_t d, int64_t n) {
    __m256i a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int position = i < 2 ? 2 * i : 2 * i + 4;
      a[2 * i] = two(rows.row(position) + d, rows.row(position + 4) + d, n);
      a[2 * i + 1] = two(rows.row(position + 1) + d, rows.row(position + 5) + d, n);
      b[2 * i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
      b[2 * i + 1] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      a[4 * i] = _mm256_unpacklo_epi32(b[4 * i], b[4 * i + 2]);
      a[4 * i + 1] = _mm256_unpackhi_epi32(b[4 * i], b[4 * i + 2]);
      a[4 * i + 2] = _mm256_unpacklo_epi32(b[4 * i + 1], b[4 * i + 3]);
      a[4 * i + 3] = _mm256_unpackhi_epi32(b[4 * i + 1], b[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      both[2 * i] = _mm256_unpacklo_epi64(a[i], a[i + 4]);
      both[2 * i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 4]);
    }
  }
  static __m256i two(const Bf16* low, const Bf16* high, int64_t n) {
    const __m128i first = eight(low, n), second = eight(high, n);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  }
  static __m128i eight(const Bf16* from, int64_t n) {
    if (n >= 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    Bf16 part[8] = {};
    memcpy(part, from, size_t(n) * sizeof(Bf16));
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(part));
  }
  F8 left(int i) const { return {_mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), both[i]))}; }
  F8 right(int i) const { return {_mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), both[i]))}; }
};
#endif

// Sixteen values of a row, as cheaply as they can be had: in which order is for `settle` to undo, once they are summed up.
template <class Stored>
struct Sixteen {
  F8 first, second;

  Sixteen(const Stored* from, float scale) : first(widen(from, 8, scale)), second(widen(from + 8, 8, scale)) {}
  static void settle(float*) {}
};

#ifdef KVELL_LANES_AVX2
// The even ones and the odd ones: bfloat16 numbers are the halves of 32 bits, so one operation each widens eight.
template <>
struct Sixteen<Bf16> {
  F8 first, second;

  Sixteen(const Bf16* from, float) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    first = {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16))};
    second = {_mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(int(0xffff0000u))))};
  }
  static void settle(float* sixteen) {
    const __m256 even = _mm256_loadu_ps(sixteen), odd = _mm256_loadu_ps(sixteen + 8);
    const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(sixteen, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(sixteen + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }
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
