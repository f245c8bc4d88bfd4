// Rows of plain codes or values -> panels, and rows out of panels again. Knows the layout; knows no instruction sets.
#include <algorithm>
#include <cmath>
#include <vector>

#include "gguf_blocks.h"
#include "layout.h"
#include "threads.h"

using namespace kvell;

namespace {

void put_scale(const kvell_matrix& m, uint8_t* block, int index, float value) {
  uint8_t* at = block + code_bytes(m.kind) + index * m.scale_bytes;
  const uint16_t half = to_half(value);
  std::memcpy(at, m.scale_bytes == 2 ? static_cast<const void*>(&half) : &value, static_cast<size_t>(m.scale_bytes));
}

// 32 codes of one row into a block.
void put_codes(uint8_t* block, int kind, int row, const uint8_t* codes) {
  uint8_t pairs[16];
  if (kind == KVELL_U4) {
    for (int i = 0; i < 16; ++i) pairs[i] = static_cast<uint8_t>((codes[i] & 15) | codes[16 + i] << 4);
    codes = pairs;
  }
  const int registers = kind == KVELL_U4 ? 4 : 8;
  for (int j = 0; j < registers; ++j) std::memcpy(block + byte_at(KVELL_S8, row, 4 * j), codes + 4 * j, 4);
}

void pack_row(const kvell_matrix& m, int64_t row, const uint8_t* codes, const float* scales, const float* offsets) {
  const int per_block = groups_per_block(m), lane = static_cast<int>(row % KVELL_PANEL);
  for (int column = 0; column < m.columns; column += KVELL_BLOCK) {
    uint8_t* block = block_at(m, row / KVELL_PANEL, column / KVELL_BLOCK);
    uint8_t padded[KVELL_BLOCK] = {};
    std::memcpy(padded, codes + column, static_cast<size_t>(std::min(KVELL_BLOCK, m.columns - column)));
    put_codes(block, m.kind, lane, padded);
    for (int group = 0; group < per_block && column + group * m.group < m.columns; ++group) {
      const int from = column / m.group + group, index = group * KVELL_PANEL + lane;
      put_scale(m, block, index, scales[from]);
      if (m.offset == KVELL_STORED) put_scale(m, block, per_block * KVELL_PANEL + index, offsets[from]);
    }
  }
}

void pack_row(const kvell_matrix& m, int64_t row, const uint8_t* values) {
  const auto size = static_cast<size_t>(value_bytes(m.kind));
  for (int column = 0; column < m.columns; ++column, values += size) {
    uint8_t* block = block_at(m, row / KVELL_PANEL, column / KVELL_BLOCK);
    const int index = value_at(m.kind, static_cast<int>(row % KVELL_PANEL), column % KVELL_BLOCK);
    std::memcpy(block + size * static_cast<size_t>(index), values, size);
  }
}

// Calls pack(row) for the rows, a panel at a time, on the team. What no row fills is zero.
template <typename Pack>
void for_each_row(kvell_team* team, const kvell_matrix& m, int32_t first_row, int32_t num_rows, Pack&& pack) {
  parallel(team, num_panels(num_rows), [&](int64_t panel, int) {
    uint8_t* data = block_at(m, first_row / KVELL_PANEL + panel, 0);
    std::memset(data, 0, static_cast<size_t>(panel_bytes(m)));
    const int64_t first = panel * KVELL_PANEL, last = std::min<int64_t>(first + KVELL_PANEL, num_rows);
    for (int64_t row = first; row < last; ++row) pack(row);
  });
}

void take_row(const kvell_matrix& m, int64_t id, float* out) {
  const int row = static_cast<int>(id % KVELL_PANEL), step = is_float(m.kind) ? KVELL_BLOCK : m.group;
  for (int start = 0; start < m.columns; start += step) {
    const uint8_t* block = block_at(m, id / KVELL_PANEL, start / KVELL_BLOCK);
    const int inner = start % KVELL_BLOCK, count = std::min(step, m.columns - start);
    if (is_float(m.kind)) {
      for (int i = 0; i < count; ++i) out[start + i] = value_of(m, block, row, inner + i);
      continue;
    }
    const float scale = scale_at(m, block, row, inner / m.group), offset = offset_at(m, block, row, inner / m.group);
    for (int i = 0; i < count; ++i)
      out[start + i] = std::fmaf(scale, static_cast<float>(code_at(block, m.kind, row, inner + i)), offset);
  }
}

}  // namespace

int64_t kvell_matrix_bytes(const kvell_matrix* matrix) { return panel_bytes(*matrix) * num_panels(matrix->rows); }

void kvell_pack_codes(kvell_team* team, const kvell_matrix* matrix, int32_t first_row, int32_t num_rows,
                      const uint8_t* codes, const float* scales, const float* offsets) {
  const kvell_matrix& m = *matrix;
  const int64_t groups = (m.columns + m.group - 1) / m.group;
  for_each_row(team, m, first_row, num_rows, [&](int64_t row) {
    const float* const row_offsets = offsets ? offsets + row * groups : nullptr;
    pack_row(m, first_row + row, codes + row * m.columns, scales + row * groups, row_offsets);
  });
}

void kvell_pack_values(kvell_team* team, const kvell_matrix* matrix, int32_t first_row, int32_t num_rows,
                       const void* values) {
  const kvell_matrix& m = *matrix;
  const int64_t row_bytes = int64_t{m.columns} * value_bytes(m.kind);
  for_each_row(team, m, first_row, num_rows, [&](int64_t row) {
    pack_row(m, first_row + row, static_cast<const uint8_t*>(values) + row * row_bytes);
  });
}

int32_t kvell_gguf_format(int32_t type_id, kvell_matrix* matrix) {
  const GgufType* type = gguf_type(type_id);
  if (!type) return 0;
  matrix->kind = type->kind;
  matrix->group = type->group;
  matrix->scale_bytes = type->scale_bytes;
  matrix->offset = type->offset;
  matrix->zero = type->zero;
  return 1;
}

void kvell_pack_gguf(kvell_team* team, const kvell_matrix* matrix, int32_t first_row, int32_t num_rows,
                     int32_t type_id, const uint8_t* data) {
  const kvell_matrix& m = *matrix;
  const GgufType& type = *gguf_type(type_id);
  const int64_t row_bytes = int64_t{m.columns} / type.values * type.bytes;
  for_each_row(team, m, first_row, num_rows, [&](int64_t row) {
    const auto groups = static_cast<size_t>(m.columns / m.group);
    std::vector<uint8_t> codes(static_cast<size_t>(m.columns));
    std::vector<float> scales(groups), offsets(groups);
    type.unpack(data + row * row_bytes, m.columns, codes.data(), scales.data(), offsets.data());
    pack_row(m, first_row + row, codes.data(), scales.data(), offsets.data());
  });
}

void kvell_take(kvell_team* team, const kvell_matrix* matrix, const int64_t* ids, int64_t num_tokens, float* out,
                int64_t out_stride) {
  constexpr int64_t PER_TILE = 8;
  parallel(team, (num_tokens + PER_TILE - 1) / PER_TILE, [&](int64_t tile, int) {
    const int64_t end = std::min((tile + 1) * PER_TILE, num_tokens);
    for (int64_t t = tile * PER_TILE; t < end; ++t) take_row(*matrix, ids[t], out + t * out_stride);
  });
}
