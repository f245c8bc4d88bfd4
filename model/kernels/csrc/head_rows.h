// What the head does with one tile of one row, in eight lanes: compiled once per instruction set, by ops_rows.h.
#pragma once

#include "head.h"
#include "lanes.h"

namespace {

using namespace kvell;

// Looks closely only at 32 logits of which one is at least as good as the last of the best, or not finite.
void find_best(const float* x, int64_t n, int32_t first_id, Best* best) {
  for (int64_t i = 0; i < n; i += 32) {
    const int64_t end = i + 32 < n ? i + 32 : n;
    if (end == i + 32) {
      const F8 a = load(x + i), b = load(x + i + 8), c = load(x + i + 16), d = load(x + i + 24);
      const bool finite = all_finite(a) & all_finite(b) & all_finite(c) & all_finite(d);
      const bool full = best->count == best->most;
      if (finite && full && (best->most == 0 || largest(max(max(a, b), max(c, d))) < best->logits[best->most - 1]))
        continue;
    }
    for (int64_t j = i; j < end; ++j) {
      best->nan |= x[j] != x[j];
      enter(*best, x[j], first_id + int32_t(j));
    }
  }
}

// The sum of e^(x - top), top the largest; 0 where that is not finite. Number j goes to lane j % 8, ascending.
float sum_exponentials(const float* x, int64_t n, float* top) {
  constexpr float infinity = __builtin_inff();
  const auto part = [&](int64_t i) {
    float whole[8] = {-infinity, -infinity, -infinity, -infinity, -infinity, -infinity, -infinity, -infinity};
    memcpy(whole, x + i, size_t(n - i) * sizeof(float));
    return load(whole);
  };
  const auto get = [&](int64_t i) { return i + 8 <= n ? load(x + i) : part(i); };
  F8 most = splat(-infinity);
  for (int64_t i = 0; i < n; i += 8) most = max(get(i), most);
  *top = largest(most);
  if (!(*top < infinity && *top > -infinity)) return 0.0f;
  F8 total = splat(0.0f);
  for (int64_t i = 0; i < n; i += 8) total = add(total, exp(sub(get(i), splat(*top))));
  return sum(total);
}

}  // namespace
