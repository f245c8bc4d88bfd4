// Moving keys and values out of the paged cache, widened to floats and laid out for the tiles of attention_tiles.h.
//
// Keys of 16 positions become a panel, transposed so that a register holds 8 positions:
//
//     cache            position 0: k0 k1 k2 ...         panel     d 0: k0 of position 0 .. 15
//     (Hkv rows apart) position 1: k0 k1 k2 ...    ->             d 1: k1 of position 0 .. 15
//                      ...                                        ...
//
// Values keep their rows, padded with zeros to a multiple of 8 numbers. Positions that no query of the item sees are never
// touched: what lies there may be stale, another sequence's, or no number at all.
#pragma once

#include "attention.h"
#include "lanes.h"

namespace {

using namespace kvell;

// One KV head of one chunk in the cache. Stored is float, Bf16 or int8_t.
template <class Stored>
class CacheRows {
 public:
  CacheRows(const void* pool, const float* scales, const kvell_attention& call, const kvell_chunk& chunk, int64_t head)
    : rows_(static_cast<const Stored* >(pool) + head * call.head_dim), scales_(scales), head_(head),
     heads_(call.num_kv_heads), head_dim_(call.head_dim), block_size_(call.block_size),
     table_(call.tables + chunk.table) {}

  // Where the D numbers of n positions lie, from `first` on, and their scales. n is at most kPanel.
  void locate(int64_t first, int64_t n, const Stored* rows[], float scales[]) const {
    int64_t block = first / block_size_, offset = first % block_size_;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t slot = int64_t(table_[block]) * block_size_ + offset;
      rows[i] = rows_ + slot * heads_ * head_dim_;
      scales[i] = sizeof(Stored) == 1 ? scales_[slot * heads_ + head_] : 1.0f;
      if (++offset == block_size_) {
        offset = 0;
        ++block;
      }
    }
  }

  int64_t head_dim() const { return head_dim_; }

 private:
  const Stored* rows_;
  const float* scales_;
  int64_t head_, heads_, head_dim_, block_size_;
  const int32_t* table_;
};

template <class Stored>
inline F8 widen(const Stored* from, int64_t n, float scale) {
  const F8 x = n >= 8 ? load(from) : load_part(from, n);
  return sizeof(Stored) == 1 ? mul(x, splat(scale)) : x;
}

// panel (D, 16): positions first .. first + 15. Only [low, high) is read; the others repeat one of these, to be masked.
template <class Stored>
void pack_keys(const CacheRows<Stored>& cache, int64_t first, int64_t low, int64_t high, float* panel) {
  const Stored* rows[kPanel];
  float scales[kPanel];
  const int64_t begin = low > first ? low - first : 0, end = high < first + kPanel ? high - first : kPanel;
  cache.locate(first + begin, end - begin, rows + begin, scales + begin);
  for (int64_t i = 0; i < kPanel; ++i) {
    if (i >= begin && i < end) continue;
    rows[i] = rows[begin];
    scales[i] = scales[begin];
  }
  for (int64_t d = 0; d < cache.head_dim(); d += 8) {
    const int64_t n = cache.head_dim() - d;
    for (int64_t half = 0; half < kPanel; half += 8) {
      F8 tile[8];
      for (int64_t i = 0; i < 8; ++i) tile[i] = widen(rows[half + i] + d, n, scales[half + i]);
      transpose(tile);
      for (int64_t i = 0; i < 8 && i < n; ++i) store(panel + (d + i) * kPanel + half, tile[i]);
    }
  }
}

// values (end - first, padded D) of positions first .. end - 1.
template <class Stored>
void pack_values(const CacheRows<Stored>& cache, int64_t first, int64_t end, float* values) {
  const int64_t padded = round_up(cache.head_dim(), 8);
  for (int64_t position = first; position < end; ++position, values += padded) {
    const Stored* row;
    float scale;
    cache.locate(position, 1, &row, &scale);
    for (int64_t d = 0; d < padded; d += 8) store(values + d, widen(row + d, cache.head_dim() - d, scale));
  }
}

}  // namespace
