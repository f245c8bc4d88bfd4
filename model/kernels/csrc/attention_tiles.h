// The two products of attention, in register tiles. A row is one query of one head; R rows share what is loaded.
//
//     scores   (R x 16)  = queries (R x D) . keys (D x 16)        12 accumulators, d ascending
//     sums     (R x 16) += weights (R x n) . values (n x 16)      12 accumulators, positions ascending
//
// Every number is one chain of fused multiply-adds in ascending order, whatever R is and wherever a tile begins.
#pragma once

#include "lanes.h"

namespace {

// queries (D, R), panel (D, 16) -> scores (R, 16), rows `stride` apart.
template <int R>
void score_tile(const float* queries, const float* panel, int64_t head_dim, float* scores, int64_t stride) {
  F8 left[R], right[R];
  for (int r = 0; r < R; ++r)
    left[r] = right[r] = splat(0.0f);
  for (int64_t d = 0; d < head_dim; ++d, queries += R, panel += 16) {
    const F8 k0 = load(panel), k1 = load(panel + 8);
    for (int r = 0; r < R; ++r) {
      const F8 q = splat(queries[r]);
      left[r] = fma(q, k0, left[r]);
      right[r] = fma(q, k1, right[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    store(scores + r * stride, left[r]);
    store(scores + r * stride + 8, right[r]);
  }
}

// weights (R, n), values (n, 8 W of them), sums (R, 8 W); the rows of each lie a stride apart.
template <int R, int W>
void sum_tile(const float* weights, int64_t weight_stride, const float* values, int64_t value_stride, int64_t n,
              float* sums, int64_t sum_stride) {
  F8 acc[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) acc[r][w] = load(sums + r * sum_stride + 8 * w);
  for (int64_t i = 0; i < n; ++i, values += value_stride) {
    F8 v[W];
    for (int w = 0; w < W; ++w) v[w] = load(values + 8 * w);
    for (int r = 0; r < R; ++r) {
      const F8 p = splat(weights[r * weight_stride + i]);
      for (int w = 0; w < W; ++w) acc[r][w] = fma(p, v[w], acc[r][w]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) store(sums + r * sum_stride + 8 * w, acc[r][w]);
}

// The same over all `width` numbers of a row of values.
template <int R>
void sum_rows(const float* weights, int64_t weight_stride, const float* values, int64_t width, int64_t n, float* sums,
              int64_t sum_stride) {
  int64_t d = 0;
  for (; d + 16 <= width; d += 16)
    sum_tile<R, 2>(weights, weight_stride, values + d, width, n, sums + d, sum_stride);
  if (d < width) sum_tile<R, 1>(weights, weight_stride, values + d, width, n, sums + d, sum_stride);
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
