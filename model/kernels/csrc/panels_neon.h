// The words of panels.h with NEON and its dot product: one instruction multiplies 4 columns of 4 rows. It takes signed
// bytes on both sides, so every kind of code goes in as it is.
#pragma once
#include <arm_neon.h>

#include "layout.h"

namespace {

using namespace kvell;

constexpr int kSide = 1, kTokens = 4;

struct Side {
  const uint8_t* at[kSide];
  Side operator+(int64_t bytes) const { return {{at[0] + bytes}}; }
};
struct Rows {
  float32x4_t low, high;
};
struct Sums {
  int32x4_t low, high;
};

inline Rows fill(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Rows times(Rows a, Rows b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline Rows plus_times(Rows a, Rows b, Rows c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
inline Rows to_floats(Sums sums) { return {vcvtq_f32_s32(sums.low), vcvtq_f32_s32(sums.high)}; }

inline void put(Rows rows, float* to, int n) {
  if (n >= KVELL_PANEL) {
    vst1q_f32(to, rows.low);
    vst1q_f32(to + 4, rows.high);
    return;
  }
  float whole[KVELL_PANEL];
  put(rows, whole, KVELL_PANEL);
  std::memcpy(to, whole, sizeof(float) * static_cast<size_t>(n));
}

inline Rows floats_at(const uint8_t* at) {
  const auto* from = reinterpret_cast<const float*>(at);
  return {vld1q_f32(from), vld1q_f32(from + 4)};
}
inline Rows halves_at(const uint8_t* at) {
  const float16x8_t eight = vreinterpretq_f16_u8(vld1q_u8(at));
  return {vcvt_f32_f16(vget_low_f16(eight)), vcvt_high_f32_f16(eight)};
}
inline Rows scales(Side side, int bytes) { return bytes == 2 ? halves_at(side.at[0]) : floats_at(side.at[0]); }

template <int KIND>
inline Rows column(Side side, int64_t c) {
  if constexpr (KIND == KVELL_F32) return floats_at(side.at[0] + c * 32);
  if constexpr (KIND == KVELL_F16) return halves_at(side.at[0] + c * 16);
  const uint8_t* pair = side.at[0] + c / 2 * 32;  // bfloat16: both columns of it in one 32-bit lane
  const uint32x4_t low = vreinterpretq_u32_u8(vld1q_u8(pair)), high = vreinterpretq_u32_u8(vld1q_u8(pair + 16));
  const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
  if (c % 2 == 0) return {vreinterpretq_f32_u32(vshlq_n_u32(low, 16)), vreinterpretq_f32_u32(vshlq_n_u32(high, 16))};
  return {vreinterpretq_f32_u32(vandq_u32(low, upper)), vreinterpretq_f32_u32(vandq_u32(high, upper))};
}

// 16 bytes of codes: rows 0..3 (at) or 4..7 (at + 16) of register j.
template <int KIND>
inline int8x16_t codes_at(const uint8_t* at, bool high_nibbles) {
  const uint8x16_t bytes = vld1q_u8(at);
  if constexpr (KIND != KVELL_U4) return vreinterpretq_s8_u8(bytes);
  return vreinterpretq_s8_u8(high_nibbles ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15)));
}

// Register j = first + LANE times numbers 4 LANE..4 LANE + 3 of 16 of each token's codes.
template <int KIND, int LANE, int TOKENS>
inline void add_register(const uint8_t* block, int first, const int8x16_t (&x)[TOKENS], Sums (&sums)[TOKENS]) {
  const int j = first + LANE;
  const uint8_t* at = block + (KIND == KVELL_U4 ? j % 4 : j) * 32;
  const int8x16_t low = codes_at<KIND>(at, j >= 4), high = codes_at<KIND>(at + 16, j >= 4);
  for (int t = 0; t < TOKENS; ++t) {
    sums[t].low = vdotq_laneq_s32(sums[t].low, low, x[t], LANE);
    sums[t].high = vdotq_laneq_s32(sums[t].high, high, x[t], LANE);
  }
}

template <int KIND, int TOKENS>
inline void add_products(Side block, int from, int to, const kvell_block* x, int64_t stride, Sums (&sums)[TOKENS]) {
  for (int first = from; first < to; first += 4) {
    int8x16_t codes[TOKENS];
    for (int t = 0; t < TOKENS; ++t) codes[t] = vld1q_s8(x[t * stride].codes + 4 * first);
    add_register<KIND, 0>(block.at[0], first, codes, sums);
    add_register<KIND, 1>(block.at[0], first, codes, sums);
    add_register<KIND, 2>(block.at[0], first, codes, sums);
    add_register<KIND, 3>(block.at[0], first, codes, sums);
  }
}

}  // namespace
