// Each of ggml's block types -> codes, scales and offsets: value = scale * code + offset, nothing rounded again.
//
// A block is a struct of little-endian halves (d, and m or dmin), bit fields and packed codes; see the comments. The
// K types have blocks of 256 with small integer scales for each 16 or 32 values; scale = d * small is a product of 11 and
// at most 7 bits, so float32 holds it exactly.
#include "gguf_blocks.h"

#include "half.h"
#include "kvell.h"

namespace kvell {
namespace {

float half_at(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return from_half(half);
}

// 16 bytes: low nibbles are values 0..15, high nibbles values 16..31.
void nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[16 + i] = bytes[i] >> 4;
  }
}

// Bit i of a 32-bit mask is the fifth bit of value i.
void fifth_bits(const uint8_t* mask, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (mask[i / 8] >> i % 8 & 1) << 4);
}

// d, nibbles: d * (q - 8)
void q4_0(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float*) {
  for (; n > 0; n -= 32, data += 18, codes += 32) {
    *scales++ = half_at(data);
    nibbles(data + 2, codes);
  }
}

// d, m, nibbles: d * q + m
void q4_1(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float* offsets) {
  for (; n > 0; n -= 32, data += 20, codes += 32) {
    *scales++ = half_at(data);
    *offsets++ = half_at(data + 2);
    nibbles(data + 4, codes);
  }
}

// d, fifth bits, nibbles: d * (q - 16)
void q5_0(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float*) {
  for (; n > 0; n -= 32, data += 22, codes += 32) {
    *scales++ = half_at(data);
    nibbles(data + 6, codes);
    fifth_bits(data + 2, codes);
  }
}

// d, m, fifth bits, nibbles: d * q + m
void q5_1(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float* offsets) {
  for (; n > 0; n -= 32, data += 24, codes += 32) {
    *scales++ = half_at(data);
    *offsets++ = half_at(data + 2);
    nibbles(data + 8, codes);
    fifth_bits(data + 4, codes);
  }
}

// d, signed bytes: d * q
void q8_0(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float*) {
  for (; n > 0; n -= 32, data += 34, codes += 32) {
    *scales++ = half_at(data);
    std::memcpy(codes, data + 2, 32);
  }
}

// scales[16] (low nibble scale, high nibble minimum), codes[64] of 2 bits, d, dmin: d * scale * q - dmin * minimum.
// 32 bytes hold 128 values: bits 2j, 2j+1 of byte l are value 32 j + l.
void q2_k(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float* offsets) {
  for (; n > 0; n -= 256, data += 84, codes += 256) {
    const float d = half_at(data + 80), dmin = half_at(data + 82);
    for (int g = 0; g < 16; ++g) {
      *scales++ = d * static_cast<float>(data[g] & 15);
      *offsets++ = -(dmin * static_cast<float>(data[g] >> 4));
    }
    for (int i = 0; i < 256; ++i) codes[i] = data[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
  }
}

// masks[32], codes[64], scales[12], d: d * (scale - 32) * (q - 4), the third bit of q from the masks. Codes lie as in
// q2_k; bit i / 32 of mask i % 32 belongs to value i. Scale g: four bits from byte g % 8, two from byte 8 + g % 4.
void q3_k(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float*) {
  for (; n > 0; n -= 256, data += 110, codes += 256) {
    const uint8_t* packed = data + 96;
    const float d = half_at(data + 108);
    for (int g = 0; g < 16; ++g) {
      const int low = packed[g % 8] >> g / 8 * 4 & 15, high = packed[8 + g % 4] >> g / 4 * 2 & 3;
      *scales++ = d * static_cast<float>((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; ++i) {
      const int low = data[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3, high = data[i % 32] >> i / 32 & 1;
      codes[i] = static_cast<uint8_t>(low | high << 2);
    }
  }
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes, after d and dmin (q4_k and q5_k).
void six_bit_scales(const uint8_t* data, float* scales, float* offsets) {
  const float d = half_at(data), dmin = half_at(data + 2);
  const uint8_t* packed = data + 4;
  for (int g = 0; g < 8; ++g) {
    int scale = packed[g % 4] & 63, minimum = packed[g % 4 + 4] & 63;
    if (g >= 4) {
      scale = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
      minimum = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    }
    scales[g] = d * static_cast<float>(scale);
    offsets[g] = -(dmin * static_cast<float>(minimum));
  }
}

// 32 bytes: the low nibbles are one group of 32 values, the high nibbles the next.
void eight_groups(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 256; ++i) codes[i] = bytes[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
}

// d, dmin, scales[12], nibbles: d * scale * q - dmin * minimum
void q4_k(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float* offsets) {
  for (; n > 0; n -= 256, data += 144, codes += 256, scales += 8, offsets += 8) {
    six_bit_scales(data, scales, offsets);
    eight_groups(data + 16, codes);
  }
}

// d, dmin, scales[12], fifth bits[32] (bit g of byte l: value 32 g + l), nibbles
void q5_k(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float* offsets) {
  for (; n > 0; n -= 256, data += 176, codes += 256, scales += 8, offsets += 8) {
    six_bit_scales(data, scales, offsets);
    eight_groups(data + 48, codes);
    for (int i = 0; i < 256; ++i)
      codes[i] = static_cast<uint8_t>(codes[i] | (data[16 + i % 32] >> i / 32 & 1) << 4);
  }
}

// low[128], high[64], signed scales[16], d: d * scale * (q - 32). Of 128 values, number i has its low nibble in byte
// i % 64 (the upper half of the values in the upper nibble) and two bits in byte i % 32.
void q6_k(const uint8_t* data, int64_t n, uint8_t* codes, float* scales, float*) {
  for (; n > 0; n -= 256, data += 210, codes += 256) {
    const float d = half_at(data + 208);
    for (int g = 0; g < 16; ++g) *scales++ = d * static_cast<float>(static_cast<int8_t>(data[192 + g]));
    for (int i = 0; i < 256; ++i) {
      const int part = i / 128, at = i % 128;
      const int low = data[part * 64 + at % 64] >> at / 64 * 4 & 15;
      const int high = data[128 + part * 32 + at % 32] >> at / 32 * 2 & 3;
      codes[i] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

constexpr GgufType TYPES[] = {
    {2, 32, 18, KVELL_U4, 32, 2, KVELL_IMPLIED, 8, q4_0},      {3, 32, 20, KVELL_U4, 32, 2, KVELL_STORED, 0, q4_1},
    {6, 32, 22, KVELL_U5, 32, 2, KVELL_IMPLIED, 16, q5_0},     {7, 32, 24, KVELL_U5, 32, 2, KVELL_STORED, 0, q5_1},
    {8, 32, 34, KVELL_S8, 32, 2, KVELL_NO_OFFSET, 0, q8_0},    {10, 256, 84, KVELL_U4, 16, 4, KVELL_STORED, 0, q2_k},
    {11, 256, 110, KVELL_U4, 16, 4, KVELL_IMPLIED, 4, q3_k},   {12, 256, 144, KVELL_U4, 32, 4, KVELL_STORED, 0, q4_k},
    {13, 256, 176, KVELL_U5, 32, 4, KVELL_STORED, 0, q5_k},    {14, 256, 210, KVELL_U6, 16, 4, KVELL_IMPLIED, 32, q6_k},
};

}  // namespace

const GgufType* gguf_type(int32_t id) {
  for (const GgufType& type : TYPES)
    if (type.id == id) return &type;
  return nullptr;
}

}  // namespace kvell
