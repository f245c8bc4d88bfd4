// Block formats of ggml, taken apart.
#pragma once
#include <cstdint>

namespace kvell {

// `num_values` consecutive values of a row, a multiple of the type's block -> codes (one a byte), and scales and offsets
// by group of 32 or 16 as `kvell_gguf_type` says. `offsets` is written only for types with stored offsets.
using UnpackFn = void (*)(const uint8_t* data, int64_t num_values, uint8_t* codes, float* scales, float* offsets);

struct GgufType {
  int32_t id;  // ggml's number for it
  int values, bytes;
  int32_t kind, group, scale_bytes, offset;
  float zero;
  UnpackFn unpack;
};

// Null for a type that isn't held as codes.
const GgufType* gguf_type(int32_t id);

}  // namespace kvell
