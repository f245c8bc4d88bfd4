// The ops of ops.h, one row each, in eight lanes: compiled once per instruction set.
#pragma once

#include "attention.h"
#include "head_rows.h"
#include "lanes.h"
#include "ops.h"

namespace {

using namespace kvell;

// Calls body(first, n) for every 8 numbers of a row; n < 8 for the last where they don't come out even.
template <class Body>
inline void by_eight(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) body(i, int64_t(8));
  if (i < n) body(i, n - i);
}
inline F8 get(const float* x, int64_t n) { return n == 8 ? load(x) : load_part(x, n); }
template <class Stored>
inline void put(Stored* to, F8 x, int64_t n) {
  n == 8 ? store(to, x) : store_part(to, x, n);
}

// Number j goes to lane j % 8 of sum (j / 8) % 4, ascending; what is missing at the end adds zeros.
inline float sum_of_squares(const float* x, int64_t n) {
  F8 sums[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int s = 0; s < 4; ++s) {
      const F8 v = load(x + i + 8 * s);
      sums[s] = fma(v, v, sums[s]);
    }
  for (int s = 0; i < n; i += 8, ++s) {
    const F8 v = get(x + i, n - i < 8 ? n - i : 8);
    sums[s] = fma(v, v, sums[s]);
  }
  return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

void norm_row(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const F8 factor = splat(1.0f / __builtin_sqrtf(sum_of_squares(x, n) / float(n) + eps));
  by_eight(n, [&](int64_t i, int64_t k) { put(out + i, mul(mul(get(x + i, k), factor), get(weight + i, k)), k); });
}

void add_row(const float* x, const float* y, int64_t n, float* out) {
  by_eight(n, [&](int64_t i, int64_t k) { put(out + i, add(get(x + i, k), get(y + i, k)), k); });
}

void scale_row(const float* x, float factor, int64_t n, float* out) {
  by_eight(n, [&](int64_t i, int64_t k) { put(out + i, mul(get(x + i, k), splat(factor)), k); });
}

// silu(x) = x / (1 + e^-x). gelu's tanh form, 0.5 x (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), equals
// x / (1 + e^-2u): one exponential serves both.
template <int N>
inline void gate_some(const float* gate, const float* up, int32_t which, int64_t k, float* out) {
  F8 x[N], e[N];
  for (int i = 0; i < N; ++i) {
    x[i] = get(gate + 8 * i, k);
    e[i] = sub(splat(0.0f), x[i]);
    if (which == KVELL_GELU_TANH) e[i] = mul(e[i], fma(mul(x[i], x[i]), splat(0.07135481627f), splat(1.59576912161f)));
  }
  exp(e);
  for (int i = 0; i < N; ++i)
    put(out + 8 * i, mul(div(x[i], add(splat(1.0f), e[i])), get(up + 8 * i, k)), k);
}

void gate_row(const float* gate, const float* up, int32_t which, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) gate_some<4>(gate + i, up + i, which, 8, out + i);
  by_eight(n - i, [&](int64_t j, int64_t k) { gate_some<1>(gate + i + j, up + i + j, which, k, out + i + j); });
}

// Number i turns with number i + n / 2.
void rotate_row(const float* x, const float* cos, const float* sin, int64_t n, float* out) {
  const int64_t half = n / 2;
  by_eight(half, [&](int64_t i, int64_t k) {
    const F8 left = get(x + i, k), right = get(x + half + i, k), c = get(cos + i, k), s = get(sin + i, k);
    put(out + i, fma(left, c, sub(splat(0.0f), mul(right, s))), k);
    put(out + half + i, fma(right, c, mul(left, s)), k);
  });
}

// int8: scale = max |x| / 127, codes to nearest even; a row with something that is no number or infinite becomes that.
void store_codes(const float* x, int64_t n, int8_t* out, float* scale) {
  F8 most = splat(0.0f);
  bool finite = true;
  by_eight(n, [&](int64_t i, int64_t k) {
    const F8 v = get(x + i, k);
    finite &= all_finite(v);
    most = max(absolute(v), most);
  });
  const float all = largest(most);
  *scale = finite ? all / 127.0f : __builtin_nanf("");
  const F8 inverse = splat(finite && all > 0x1p-100f ? 127.0f / all : 0.0f);
  by_eight(n, [&](int64_t i, int64_t k) { put(out + i, finite ? mul(get(x + i, k), inverse) : splat(1.0f), k); });
}

void store_row(const float* x, int32_t stored, int64_t n, void* out, float* scale) {
  if (stored == KVELL_CACHE_INT8) return store_codes(x, n, static_cast<int8_t*>(out), scale);
  if (stored == KVELL_CACHE_F32) return void(memcpy(out, x, size_t(n) * sizeof(float)));
  by_eight(n, [&](int64_t i, int64_t k) { put(static_cast<Bf16*>(out) + i, get(x + i, k), k); });
}

bool finite_row(const float* x, int64_t n) {
  bool finite = true;
  by_eight(n, [&](int64_t i, int64_t k) { finite &= all_finite(get(x + i, k)); });
  return finite;
}

constexpr RowKernels ROW_KERNELS = {norm_row,  add_row,    scale_row, gate_row,        rotate_row,
                                    store_row, finite_row, find_best, sum_exponentials};

}  // namespace
