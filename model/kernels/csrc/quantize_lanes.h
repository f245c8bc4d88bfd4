// Activations to int8 blocks in the eight lanes of lanes.h. See kvell.h for the numbers and gemm_plain.cpp for the same in
// plain C.
#pragma once
#include "kvell.h"
#include "lanes.h"

namespace {

inline int32_t sum_of_sixteen(const int8_t* codes) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += codes[i];
  return sum;
}

void quantize_lanes_block(const float* x, kvell_block& out) {
  F8 v[4], most = splat(0.0f);
  bool finite = true;
  for (int i = 0; i < 4; ++i) {
    v[i] = load(x + 8 * i);
    finite &= all_finite(v[i]);
    most = max(absolute(v[i]), most);
  }
  const float peak = largest(most);
  if (!finite || peak < 0x1p-100f) {
    memset(out.codes, 0, sizeof out.codes);
    out.scale = out.sum = out.low = out.high = finite ? 0.0f : __builtin_nanf("");
    return;
  }
  const F8 inverse = splat(127.0f / peak);
  for (int i = 0; i < 4; ++i) store(out.codes + 8 * i, mul(v[i], inverse));
  const int32_t low = sum_of_sixteen(out.codes), high = sum_of_sixteen(out.codes + 16);
  out.scale = peak / 127.0f;
  out.low = out.scale * float(low);
  out.high = out.scale * float(high);
  out.sum = out.scale * float(low + high);
}

void quantize_lanes(const float* x, int columns, kvell_block* out) {
  int column = 0;
  for (; column + KVELL_BLOCK <= columns; column += KVELL_BLOCK) quantize_lanes_block(x + column, *out++);
  if (column == columns) return;
  float rest[KVELL_BLOCK] = {};
  memcpy(rest, x + column, sizeof(float) * size_t(columns - column));
  quantize_lanes_block(rest, *out);
}

}  // namespace
