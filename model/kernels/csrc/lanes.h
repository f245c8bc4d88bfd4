// Eight float lanes: the words that attention and the ops are written in, once for every instruction set.
//
// A translation unit defines KVELL_LANES_AVX2 (and is compiled with -mavx2 -mfma), KVELL_LANES_NEON (on 64-bit Arm) or
// nothing (portable C++). All give the same bits, because every word below is either exact or rounded once per lane,
// reductions across lanes have one fixed tree, and the compiler is kept from contracting or reordering
// (-ffp-contract=off, no fast-math).
//
// All names are in an anonymous namespace: two instruction sets must never share an inline function, or the linker
// would keep the one that the machine cannot run.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(KVELL_LANES_AVX2)
#include <immintrin.h>
#elif defined(KVELL_LANES_NEON)
#include <arm_neon.h>
#endif

namespace {

// A bfloat16 number: the upper half of a float.
struct Bf16 {
  uint16_t bits;
};

constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: added to a small float, it leaves the nearest whole number below

inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// To the nearest, ties to even; not a number stays that.
inline Bf16 round_to_bf16(float x) {
  const uint32_t bits = bits_of(x);
  if (x != x)
    return {uint16_t((bits | 0x400000u) >> 16)};
  return {uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

#if defined(KVELL_LANES_AVX2)
#include "lanes_avx2.h"
#elif defined(KVELL_LANES_NEON)
#include "lanes_neon.h"
#else
#include "lanes_plain.h"
#endif

// Keeps the compiler from holding what can be reckoned from this pointer in registers that are needed for sums.
template <class Value>
inline void forget(Value*& pointer) {
#if defined(__GNUC__)
  __asm__("" : "+r"(pointer));
#else
  (void)pointer;
#endif
}

// The first n (1 to 7) numbers of a row of another type; the others read as zero.
template <class Stored>
inline F8 load_part(const Stored* from, int64_t n) {
  Stored whole[8] = {};
  memcpy(whole, from, size_t(n) * sizeof(Stored));
  return load(whole);
}

template <class Stored>
inline void store_part(Stored* to, F8 a, int64_t n) {
  Stored whole[8];
  store(whole, a);
  memcpy(to, whole, size_t(n) * sizeof(Stored));
}

// e^x to about one unit in the last place; 0 below -87, e^88 above 88; not a number stays that.
//
// x = n ln 2 + r with n whole and |r| <= ln 2 / 2 (Cody and Waite 1980: ln 2 in two floats, so that n ln 2 is taken off
// almost exactly), e^x = 2^n e^r, e^r = 1 + r + r^2 q(r). q has degree 4; its coefficients are our own: a Remez
// exchange that minimises the relative error of e^r on that interval (3.1e-9 before they were rounded to floats).
//
// Of N registers at once, step by step: one alone would wait for each of its steps, and fill the processor's queues with
// steps that wait.
template <int N>
inline void exp(F8 (&x)[N]) {
  const F8 lowest = splat(-87.0f);
  F8 shifted[N], r[N], q[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) r[i] = max(lowest, min(splat(88.0f), x[i]));
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) shifted[i] = fma(r[i], splat(1.44269504f), splat(kWhole));
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    const F8 n = sub(shifted[i], splat(kWhole));
    r[i] = fma(n, splat(-0x1.62e430p-1f), r[i]);
    r[i] = fma(n, splat(0x1.05c610p-29f), r[i]);
    q[i] = splat(0x1.6a23d0p-10f);
  }
  const float coefficients[] = {0x1.123a20p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};
#pragma GCC unroll 8
  for (const float c : coefficients)
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) q[i] = fma(q[i], r[i], splat(c));
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    const F8 p = add(fma(mul(r[i], r[i]), q[i], r[i]), splat(1.0f));
    x[i] = zero_below(x[i], lowest, times_power_of_two(p, shifted[i]));
  }
}

inline F8 exp(F8 x) {
  F8 one[1] = {x};
  exp(one);
  return one[0];
}

}  // namespace
