// The two products of attention, in register tiles. A row is one query of one head; R rows share what is loaded.
//
//     scores   (R x 16)  = queries (R x D) . keys (D x 16)        2 R accumulators, d ascending
//     sums   (R x 8 W)  += weights (R x n) . values (n x 8 W)     R W accumulators, positions ascending
//
// Many rows read keys and values that were widened once for all of them; few rows (a decode step) take them straight
// from the cache, where sixteen positions lie in one block. Every number is the same chain of fused multiply-adds either way, whatever R is and wherever a tile
// begins.
#pragma once

#include "attention_rows.h"

namespace {

constexpr int64_t kAhead = 32;  // positions by which keys and values are fetched before their turn, whole panels

// One number d of R queries and 16 keys.
template <int R>
struct Scores {
  F8 left[R], right[R];

  Scores() {
    for (int r = 0; r < R; ++r) left[r] = right[r] = splat(0.0f);
  }
  void step(const float* queries, F8 k0, F8 k1) {
    for (int r = 0; r < R; ++r) {
      const F8 q = splat(queries[r]);
      left[r] = fma(q, k0, left[r]);
      right[r] = fma(q, k1, right[r]);
    }
  }
  void put(float* scores, int64_t stride) const {
    for (int r = 0; r < R; ++r) {
      store(scores + r * stride, left[r]);
      store(scores + r * stride + 8, right[r]);
    }
  }
};

// queries (D, R), keys (D, 16) -> scores (R, 16), rows `stride` apart.
template <int R>
void score_wide(const float* queries, const float* keys, int64_t head_dim, float* scores, int64_t stride) {
  Scores<R> tile;
  for (int64_t d = 0; d < head_dim; ++d, queries += R, keys += kPanel) tile.step(queries, load(keys), load(keys + 8));
  tile.put(scores, stride);
}

// The same from the cache. Meanwhile it fetches what `next` will need, spread over the work: a line of each of its rows
// in the time that it takes to use one of these keys'.
template <int R, class Stored>
void score_strip(const float* queries, const Strip<Stored>& keys, const Strip<Stored>& next, int64_t head_dim,
                 float* scores, int64_t stride) {
  constexpr int kLine = 64 / sizeof(Stored), kFetches = kPanel * 8 / kLine;
  Scores<R> tile;
  for (int64_t d = 0; d < head_dim; d += 8) {
    const int64_t n = head_dim - d, row = d % kLine / 8 * kFetches;
    for (int i = 0; i < kFetches; ++i) prefetch(next.row(row + i) + d);
    if (n >= 8) {
      const Turned<Stored> turned(keys.from(d), 0, 8);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) tile.step(queries + i * R, turned.left(i), turned.right(i));
    } else {
      const Turned<Stored> turned(keys.from(d), 0, n);
      for (int i = 0; i < n; ++i) tile.step(queries + i * R, turned.left(i), turned.right(i));
    }
    queries += 8 * R;
  }
  tile.put(scores, stride);
}

// W registers of each of R rows of sums.
template <int R, int W>
struct Sums {
  F8 acc[R][W];

  Sums(const float* sums, int64_t stride) {
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < W; ++w) acc[r][w] = load(sums + r * stride + 8 * w);
  }
  void step(const float* weights, int64_t stride, const F8 (&values)[W]) {
    for (int r = 0; r < R; ++r) {
      const F8 p = splat(weights[r * stride]);
      for (int w = 0; w < W; ++w) acc[r][w] = fma(p, values[w], acc[r][w]);
    }
  }
  void put(float* sums, int64_t stride) const {
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < W; ++w) store(sums + r * stride + 8 * w, acc[r][w]);
  }
};

// weights (R, n) rows kRange apart, values (n, 8 W of `width`), sums (R, 8 W) rows `stride` apart.
template <int R, int W>
void sum_wide_tile(const float* weights, const float* values, int64_t width, int64_t n, float* sums, int64_t stride) {
  Sums<R, W> tile(sums, stride);
  for (int64_t i = 0; i < n; ++i, values += width) {
    F8 v[W];
    for (int w = 0; w < W; ++w) v[w] = load(values + 8 * w);
    tile.step(weights + i, kRange, v);
  }
  tile.put(sums, stride);
}

// The same over all `width` numbers of a row of values.
template <int R>
void sum_wide(const float* weights, const float* values, int64_t width, int64_t n, float* sums, int64_t stride) {
  int64_t d = 0;
  for (; d + 16 <= width; d += 16) sum_wide_tile<R, 2>(weights, values + d, width, n, sums + d, stride);
  if (d < width) sum_wide_tile<R, 1>(weights, values + d, width, n, sums + d, stride);
}

// 16 P numbers from d on of n positions from `from` on of a strip, in Sixteen's order.
template <int R, int P, class Stored>
void sum_strip_tile(const float* weights, const Strip<Stored>& values, const Strip<Stored>& next, int64_t from,
                    int64_t n, int64_t d, float* sums, int64_t stride) {
  Sums<R, 2 * P> tile(sums + d, stride);
  const Stored* row = values.row(from) + d;
  const Stored* fetched = next.row(from) + d;
  for (int64_t i = 0; i < n; ++i, row += values.stride, fetched += next.stride) {
    prefetch(fetched);
    for (int p = 0; p < P; ++p) {
      const Sixteen<Stored> v(row + 16 * p, values.scale(from + i));
      const float* weight_of = weights + i;
      for (int r = 0; r < R; ++r) {
        const F8 weight = splat(weight_of[r * kRange]);
        tile.acc[r][2 * p] = fma(weight, v.first, tile.acc[r][2 * p]);
        tile.acc[r][2 * p + 1] = fma(weight, v.second, tile.acc[r][2 * p + 1]);
      }
    }
  }
  tile.put(sums + d, stride);
}

// All numbers of these positions. What is left over of 16 goes by eight, in its own order.
template <int R, class Stored>
void sum_strip(const float* weights, const Strip<Stored>& values, const Strip<Stored>& next, int64_t from, int64_t n,
               int64_t head_dim, float* sums, int64_t stride) {
  constexpr int P = 1;  // as many sums as fit the registers
  int64_t d = 0;
  for (; d + 16 * P <= head_dim; d += 16 * P)
    sum_strip_tile<R, P>(weights, values, next, from, n, d, sums, stride);
  for (; d + 16 <= head_dim; d += 16) sum_strip_tile<R, 1>(weights, values, next, from, n, d, sums, stride);
  for (; d < head_dim; d += 8) {
    Sums<R, 1> tile(sums + d, stride);
    for (int64_t i = 0; i < n; ++i) {
      const F8 v[1] = {widen(values.row(from + i) + d, head_dim - d, values.scale(from + i))};
      tile.step(weights + i, kRange, v);
    }
    tile.put(sums + d, stride);
  }
}

// sums (rows, head_dim) in Sixteen's order -> in the order of the numbers.
template <class Stored>
void settle(float* sums, int64_t rows, int64_t head_dim, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t d = 0; d + 16 <= head_dim; d += 16) Sixteen<Stored>::settle(sums + row * stride + d);
}

template <int R>
struct Rows {
  static constexpr int number = R;
};

// Calls tile(Rows<n>) for n rows, kRows at most.
template <class Tile>
inline void with_rows(int64_t n, Tile&& tile) {
  switch (n) {
    case 1: return tile(Rows<1>());
    case 2: return tile(Rows<2>());
    case 3: return tile(Rows<3>());
    case 4: return tile(Rows<4>());
    case 5: return tile(Rows<5>());
    default: return tile(Rows<6>());
  }
}

}  // namespace
