// Eight float lanes in portable C++: the meaning that every other lanes_*.h must reproduce bit for bit.
//
// Included by lanes.h only, inside its anonymous namespace. Slow without a fused multiply-add in hardware, but right:
// fmaf rounds once, as the instruction does.

struct F8 {
  float at[8];
};

#define KVELL_EACH(expression)       \
  F8 out;                          \
  for (int i = 0; i < 8; ++i)      \
    out.at[i] = (expression);    \
  return out

inline F8 splat(float x) { KVELL_EACH(x); }
inline F8 load(const float* from) { KVELL_EACH(from[i]); }
inline F8 add(F8 a, F8 b) { KVELL_EACH(a.at[i] + b.at[i]); }
inline F8 sub(F8 a, F8 b) { KVELL_EACH(a.at[i] - b.at[i]); }
inline F8 mul(F8 a, F8 b) { KVELL_EACH(a.at[i] * b.at[i]); }
inline F8 div(F8 a, F8 b) { KVELL_EACH(a.at[i] / b.at[i]); }
inline F8 fma(F8 a, F8 b, F8 c) { KVELL_EACH(__builtin_fmaf(a.at[i], b.at[i], c.at[i])); }
// Where either is not a number the second operand comes out, as on x86.
inline F8 max(F8 a, F8 b) { KVELL_EACH(a.at[i] > b.at[i] ? a.at[i] : b.at[i]); }
inline F8 min(F8 a, F8 b) { KVELL_EACH(a.at[i] < b.at[i] ? a.at[i] : b.at[i]); }
inline F8 absolute(F8 a) { KVELL_EACH(__builtin_fabsf(a.at[i])); }
// first <= base + lane < end ? a : b
inline F8 choose_between(int32_t base, int32_t first, int32_t end, F8 a, F8 b) {
  KVELL_EACH(first <= base + i && base + i < end ? a.at[i] : b.at[i]);
}
// p * 2^n where shifted = 1.5 * 2^23 + n: n is added to the exponent. p * 2^n must be a normal number.
inline F8 times_power_of_two(F8 p, F8 shifted) {
  KVELL_EACH(float_of(bits_of(p.at[i]) + (bits_of(shifted.at[i]) << 23)));
}
// x < limit ? 0 : x is not a number ? x : a
inline F8 zero_below(F8 x, F8 limit, F8 a) {
  KVELL_EACH(x.at[i] < limit.at[i] ? 0.0f : x.at[i] != x.at[i] ? x.at[i] : a.at[i]);
}

inline void store(float* to, F8 a) {
  for (int i = 0; i < 8; ++i)
    to[i] = a.at[i];
}
// The first n (0 to 8) numbers; the others read as zero.
inline F8 load_part(const float* from, int64_t n) { KVELL_EACH(i < n ? from[i] : 0.0f); }
inline void store_part(float* to, F8 a, int64_t n) {
  for (int i = 0; i < n; ++i)
    to[i] = a.at[i];
}

inline float sum(F8 a) {
  const float* x = a.at;
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
inline float largest(F8 a) {
  const auto greater = [](float x, float y) { return x > y ? x : y; };
  const float* x = a.at;
  return greater(greater(greater(x[0], x[4]), greater(x[2], x[6])), greater(greater(x[1], x[5]), greater(x[3], x[7])));
}

inline F8 load(const Bf16* from) { KVELL_EACH(float_of(uint32_t(from[i].bits) << 16)); }
inline F8 load(const int8_t* from) { KVELL_EACH(float(from[i])); }
inline void store(Bf16* to, F8 a) {
  for (int i = 0; i < 8; ++i)
    to[i] = round_to_bf16(a.at[i]);
}
// To the nearest whole number, ties to even. |a| at most 2^22.
inline void store(int8_t* to, F8 a) {
  for (int i = 0; i < 8; ++i)
    to[i] = int8_t(bits_of(a.at[i] + kWhole) - bits_of(kWhole));
}
inline bool all_finite(F8 a) {
  bool finite = true;
  for (int i = 0; i < 8; ++i)
    finite &= (bits_of(a.at[i]) & 0x7f800000u) != 0x7f800000u;
  return finite;
}
// rows[i] lane j becomes rows[j] lane i.
inline void transpose(F8 rows[8]) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < i; ++j) {
      const float kept = rows[i].at[j];
      rows[i].at[j] = rows[j].at[i];
      rows[j].at[i] = kept;
    }
}

#undef KVELL_EACH
