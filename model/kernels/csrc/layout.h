// How a matrix lies in memory.
//
// Eight rows are a panel; a panel is one stream of blocks, left to right, and one block is 8 rows x 32 columns:
//
//   byte kinds (U5 U6 S8)   8 registers of 32 bytes; register j holds columns 4j..4j+3, four bytes for each row:
//                             | r0: c0 c1 c2 c3 | r1: c0 c1 c2 c3 | ... | r7: c0 c1 c2 c3 |      256 bytes
//   U4                      4 registers; the low nibbles are register j (columns 4j..), the high nibbles are
//                           register j + 4 (columns 16 + 4j..)                                  128 bytes
//   then                    scales of the 8 rows, for each group of the block
//   then, where STORED      offsets of the 8 rows, for each group of the block
//
//   BF16                    16 registers of 32 bytes; register j holds columns 2j and 2j+1, two halves for each row
//   F16, F32                column by column, 8 rows each
//
// So one register's worth of multiply-adds serves eight outputs, and no sum ever runs across a register.
// Rows and columns are padded with zeros to whole panels and blocks.
#pragma once
#include "half.h"
#include "kvell.h"

namespace kvell {

static inline bool is_float(int kind) { return kind >= KVELL_BF16; }
static inline int value_bytes(int kind) { return kind == KVELL_F32 ? 4 : 2; }  // of float kinds
static inline int num_blocks(int columns) { return (columns + KVELL_BLOCK - 1) / KVELL_BLOCK; }
static inline int num_panels(int rows) { return (rows + KVELL_PANEL - 1) / KVELL_PANEL; }
static inline int groups_per_block(const kvell_matrix& m) { return KVELL_BLOCK / m.group; }

// Bytes of a block's codes (or float values), and of the whole block.
static inline int code_bytes(int kind) {
  if (is_float(kind)) return KVELL_PANEL * KVELL_BLOCK * value_bytes(kind);
  return kind == KVELL_U4 ? KVELL_PANEL * KVELL_BLOCK / 2 : KVELL_PANEL * KVELL_BLOCK;
}

static inline int block_bytes(const kvell_matrix& m) {
  if (is_float(m.kind)) return code_bytes(m.kind);
  const int terms = m.offset == KVELL_STORED ? 2 : 1;
  return code_bytes(m.kind) + terms * groups_per_block(m) * KVELL_PANEL * m.scale_bytes;
}

static inline int64_t panel_bytes(const kvell_matrix& m) { return int64_t{block_bytes(m)} * num_blocks(m.columns); }

static inline uint8_t* block_at(const kvell_matrix& m, int64_t panel, int block) {
  return m.data + panel * panel_bytes(m) + int64_t{block} * block_bytes(m);
}

// Where the code (a byte, or the byte whose nibble it is) of a panel's row and a block's column lies in the block.
static inline int byte_at(int kind, int row, int column) {
  const int in_register = kind == KVELL_U4 ? column % 16 : column;
  return in_register / 4 * 32 + row * 4 + in_register % 4;
}

// Index of a float kind's value in the block.
static inline int value_at(int kind, int row, int column) {
  if (kind != KVELL_BF16) return column * KVELL_PANEL + row;
  return column / 2 * 2 * KVELL_PANEL + row * 2 + column % 2;
}

static inline int code_at(const uint8_t* block, int kind, int row, int column) {
  const uint8_t byte = block[byte_at(kind, row, column)];
  if (kind == KVELL_U4) return column < 16 ? byte & 15 : byte >> 4;
  return kind == KVELL_S8 ? static_cast<int8_t>(byte) : byte;
}

static inline float stored_scale(const kvell_matrix& m, const uint8_t* block, int index) {
  const uint8_t* at = block + code_bytes(m.kind) + index * m.scale_bytes;
  if (m.scale_bytes == 2) {
    uint16_t half;
    std::memcpy(&half, at, 2);
    return from_half(half);
  }
  float value;
  std::memcpy(&value, at, 4);
  return value;
}

static inline float scale_at(const kvell_matrix& m, const uint8_t* block, int row, int group) {
  return stored_scale(m, block, group * KVELL_PANEL + row);
}

// 0 where the matrix has none.
static inline float offset_at(const kvell_matrix& m, const uint8_t* block, int row, int group) {
  if (m.offset == KVELL_IMPLIED) return -m.zero * scale_at(m, block, row, group);
  if (m.offset == KVELL_NO_OFFSET) return 0.0f;
  return stored_scale(m, block, (groups_per_block(m) + group) * KVELL_PANEL + row);
}

static inline float value_of(const kvell_matrix& m, const uint8_t* block, int row, int column) {
  const int index = value_at(m.kind, row, column);
  if (m.kind == KVELL_F32) {
    float value;
    std::memcpy(&value, block + 4 * index, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, block + 2 * index, 2);
  return m.kind == KVELL_BF16 ? from_bfloat(half) : from_half(half);
}

}  // namespace kvell
