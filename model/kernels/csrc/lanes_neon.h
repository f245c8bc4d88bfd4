// Eight float lanes in two NEON registers. Same names and same bits as lanes_plain.h, which says what each means.
//
// Included by lanes.h only, inside its anonymous namespace. NEON's own max and min treat what is not a number in another
// way than lanes_plain.h does, so here they compare and choose.

struct F8 {
  float32x4_t low, high;
};

inline float32x4_t choose(uint32x4_t which, float32x4_t a, float32x4_t b) { return vbslq_f32(which, a, b); }
inline float32x4_t greater(float32x4_t a, float32x4_t b) { return choose(vcgtq_f32(a, b), a, b); }
inline float32x4_t smaller(float32x4_t a, float32x4_t b) { return choose(vcltq_f32(a, b), a, b); }

inline F8 splat(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline F8 load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
inline F8 add(F8 a, F8 b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline F8 sub(F8 a, F8 b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
inline F8 mul(F8 a, F8 b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline F8 div(F8 a, F8 b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
inline F8 fma(F8 a, F8 b, F8 c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
inline F8 max(F8 a, F8 b) { return {greater(a.low, b.low), greater(a.high, b.high)}; }
inline F8 min(F8 a, F8 b) { return {smaller(a.low, b.low), smaller(a.high, b.high)}; }
inline F8 absolute(F8 a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }

inline float32x4_t choose_four(int32_t base, int32_t first, int32_t end, float32x4_t a, float32x4_t b) {
  constexpr int32_t numbers[] = {0, 1, 2, 3};
  const int32x4_t at = vaddq_s32(vdupq_n_s32(base), vld1q_s32(numbers));
  return choose(vandq_u32(vcgeq_s32(at, vdupq_n_s32(first)), vcltq_s32(at, vdupq_n_s32(end))), a, b);
}
inline F8 choose_between(int32_t base, int32_t first, int32_t end, F8 a, F8 b) {
  return {choose_four(base, first, end, a.low, b.low), choose_four(base + 4, first, end, a.high, b.high)};
}
inline float32x4_t add_exponent(float32x4_t p, float32x4_t shifted) {
  const uint32x4_t power = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
  return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), power));
}
inline F8 times_power_of_two(F8 p, F8 shifted) {
  return {add_exponent(p.low, shifted.low), add_exponent(p.high, shifted.high)};
}
inline float32x4_t zero_four_below(float32x4_t x, float32x4_t limit, float32x4_t a) {
  const float32x4_t kept = choose(vcltq_f32(x, limit), vdupq_n_f32(0.0f), a);
  return choose(vceqq_f32(x, x), kept, x);
}
inline F8 zero_below(F8 x, F8 limit, F8 a) {
  return {zero_four_below(x.low, limit.low, a.low), zero_four_below(x.high, limit.high, a.high)};
}

inline void store(float* to, F8 a) {
  vst1q_f32(to, a.low);
  vst1q_f32(to + 4, a.high);
}
inline F8 load_part(const float* from, int64_t n) {
  float whole[8] = {};
  memcpy(whole, from, size_t(n) * sizeof(float));
  return load(whole);
}
inline void store_part(float* to, F8 a, int64_t n) {
  float whole[8];
  store(whole, a);
  memcpy(to, whole, size_t(n) * sizeof(float));
}

inline float sum(F8 a) {
  const float32x4_t four = vaddq_f32(a.low, a.high);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float largest(F8 a) {
  const float32x4_t four = greater(a.low, a.high), two = greater(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(greater(two, vextq_f32(two, two, 1)), 0);
}

inline F8 load(const Bf16* from) {
  const uint16x8_t bits = vld1q_u16(reinterpret_cast<const uint16_t*>(from));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(bits), 16))};
}
inline F8 load(const int8_t* from) {
  const int16x8_t codes = vmovl_s8(vld1_s8(from));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(codes)))};
}
inline uint16x4_t upper_halves(float32x4_t a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet), 16);
}
inline void store(Bf16* to, F8 a) {
  vst1q_u16(reinterpret_cast<uint16_t*>(to), vcombine_u16(upper_halves(a.low), upper_halves(a.high)));
}
inline uint16x4_t whole_numbers(float32x4_t a) {
  return vmovn_u32(vreinterpretq_u32_f32(vaddq_f32(a, vdupq_n_f32(kWhole))));
}
inline void store(int8_t* to, F8 a) {
  const uint16x8_t whole = vcombine_u16(whole_numbers(a.low), whole_numbers(a.high));
  vst1_s8(to, vreinterpret_s8_u8(vmovn_u16(whole)));
}
inline uint32x4_t not_finite(float32x4_t a) {
  const uint32x4_t exponent = vdupq_n_u32(0x7f800000);
  return vceqq_u32(vandq_u32(vreinterpretq_u32_f32(a), exponent), exponent);
}
inline bool all_finite(F8 a) { return vmaxvq_u32(vorrq_u32(not_finite(a.low), not_finite(a.high))) == 0; }

// Four rows of four: rows[i] lane j becomes rows[j] lane i.
inline void transpose_four(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const float32x4_t ac_low = vzip1q_f32(a, c), ac_high = vzip2q_f32(a, c);
  const float32x4_t bd_low = vzip1q_f32(b, d), bd_high = vzip2q_f32(b, d);
  a = vzip1q_f32(ac_low, bd_low);
  b = vzip2q_f32(ac_low, bd_low);
  c = vzip1q_f32(ac_high, bd_high);
  d = vzip2q_f32(ac_high, bd_high);
}
inline void transpose(F8 rows[8]) {
  transpose_four(rows[0].low, rows[1].low, rows[2].low, rows[3].low);
  transpose_four(rows[4].high, rows[5].high, rows[6].high, rows[7].high);
  transpose_four(rows[0].high, rows[1].high, rows[2].high, rows[3].high);
  transpose_four(rows[4].low, rows[5].low, rows[6].low, rows[7].low);
  for (int i = 0; i < 4; ++i) {  // the upper right quarter changes places with the lower left one
    const float32x4_t kept = rows[i].high;
    rows[i].high = rows[i + 4].low;
    rows[i + 4].low = kept;
  }
}
