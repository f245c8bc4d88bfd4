// Rows of plain codes or values -> panels, and rows out of panels again. Knows the layout; knows no instruction sets.
#include <cmath>
#include <cstring>

#include "layout.h"

using namespace kvell;

namespace {

void put_code(uint8_t* block, int kind, int row, int column, uint8_t code) {
  uint8_t* at = block + byte_at(kind, row, column);
  if (kind == KVELL_U4) {
    *at = static_cast<uint8_t>(column < 16 ? (*at & 0xf0) | (code & 15) : (*at & 0x0f) | code << 4);
  } else {
    *at = code;
  }
}

void put_scale(const kvell_matrix& m, uint8_t* block, int index, float value) {
  uint8_t* at = block + code_bytes(m.kind) + index * m.scale_bytes;
  const uint16_t half = to_half(value);
  std::memcpy(at, m.scale_bytes == 2 ? static_cast<const void*>(&half) : &value, static_cast<size_t>(m.scale_bytes));
}

void pack_row_codes(const kvell_matrix& m, int64_t row, const uint8_t* codes) {
  for (int column = 0; column < m.columns; ++column) {
    uint8_t* block = block_at(m, row / KVELL_PANEL, column / KVELL_BLOCK);
    put_code(block, m.kind, static_cast<int>(row % KVELL_PANEL), column % KVELL_BLOCK, codes[column]);
  }
}

void pack_row_scales(const kvell_matrix& m, int64_t row, const float* scales, const float* offsets) {
  const int per_block = groups_per_block(m), num_groups = (m.columns + m.group - 1) / m.group;
  for (int group = 0; group < num_groups; ++group) {
    uint8_t* block = block_at(m, row / KVELL_PANEL, group / per_block);
    const int index = group % per_block * KVELL_PANEL + static_cast<int>(row % KVELL_PANEL);
    put_scale(m, block, index, scales[group]);
    if (m.offset == KVELL_STORED) put_scale(m, block, per_block * KVELL_PANEL + index, offsets[group]);
  }
}

void clear(const kvell_matrix& m, int32_t first_row, int32_t num_rows) {
  const int first = first_row / KVELL_PANEL, count = num_panels(num_rows);
  std::memset(block_at(m, first, 0), 0, static_cast<size_t>(panel_bytes(m) * count));
}

}  // namespace

int64_t kvell_matrix_bytes(const kvell_matrix* matrix) { return panel_bytes(*matrix) * num_panels(matrix->rows); }

void kvell_pack_codes(const kvell_matrix* matrix, int32_t first_row, int32_t num_rows, const uint8_t* codes,
                      const float* scales, const float* offsets) {
  const kvell_matrix& m = *matrix;
  const int64_t num_groups = (m.columns + m.group - 1) / m.group;
  clear(m, first_row, num_rows);
  for (int64_t row = 0; row < num_rows; ++row) {
    pack_row_codes(m, first_row + row, codes + row * m.columns);
    pack_row_scales(m, first_row + row, scales + row * num_groups, offsets ? offsets + row * num_groups : nullptr);
  }
}

void kvell_pack_values(const kvell_matrix* matrix, int32_t first_row, int32_t num_rows, const void* values) {
  const kvell_matrix& m = *matrix;
  const size_t size = static_cast<size_t>(value_bytes(m.kind));
  const auto* from = static_cast<const uint8_t*>(values);
  clear(m, first_row, num_rows);
  for (int64_t row = first_row; row < first_row + num_rows; ++row) {
    for (int column = 0; column < m.columns; ++column, from += size) {
      uint8_t* block = block_at(m, row / KVELL_PANEL, column / KVELL_BLOCK);
      const int index = value_at(m.kind, static_cast<int>(row % KVELL_PANEL), column % KVELL_BLOCK);
      std::memcpy(block + size * static_cast<size_t>(index), from, size);
    }
  }
}

void kvell_take(const kvell_matrix* matrix, const int64_t* ids, int64_t num_tokens, float* out, int64_t out_stride) {
  const kvell_matrix& m = *matrix;
  for (int64_t token = 0; token < num_tokens; ++token, out += out_stride) {
    const int row = static_cast<int>(ids[token] % KVELL_PANEL);
    for (int column = 0; column < m.columns; ++column) {
      const uint8_t* block = block_at(m, ids[token] / KVELL_PANEL, column / KVELL_BLOCK);
      const int inner = column % KVELL_BLOCK;
      if (is_float(m.kind)) {
        out[column] = value_of(m, block, row, inner);
      } else {
        const int group = inner / m.group;
        const auto code = static_cast<float>(code_at(block, m.kind, row, inner));
        out[column] = std::fmaf(scale_at(m, block, row, group), code, offset_at(m, block, row, group));
      }
    }
  }
}
