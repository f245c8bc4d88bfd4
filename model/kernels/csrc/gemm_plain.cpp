// The matrix products in plain C: what every other instruction set has to equal bit for bit. Written to be read; it is
// fast enough to serve with, no more.
#include <cmath>

#include "kernels.h"
#include "layout.h"

namespace kvell::plain {
namespace {

constexpr float LEAST = 0x1p-100f;  // below it the reciprocal would overflow

// One block of a token; see kvell.h for the numbers. x has `count` of the 32 columns, the rest are zeros.
void quantize_block(const float* x, int count, kvell_block& out) {
  uint32_t bits = 0;  // of the largest magnitude: as integers they order as the floats do, with NaN above infinity
  for (int i = 0; i < count; ++i) {
    const uint32_t magnitude = to_bits(x[i]) & 0x7fffffffu;
    bits = magnitude > bits ? magnitude : bits;
  }
  const float largest = from_bits(bits);
  std::memset(&out, 0, sizeof out);
  if (largest < LEAST) return;
  if (bits >= 0x7f800000u) {
    out.scale = out.sum = out.low = out.high = from_bits(0x7fc00000u);
    return;
  }
  const float inverse = 127.0f / largest;
  int sums[2] = {0, 0};
  for (int i = 0; i < count; ++i) {
    const int code = static_cast<int>(std::nearbyint(x[i] * inverse));
    out.codes[i] = static_cast<int8_t>(code);
    sums[i / 16] += code;
  }
  out.scale = largest / 127.0f;
  out.low = out.scale * static_cast<float>(sums[0]);
  out.high = out.scale * static_cast<float>(sums[1]);
  out.sum = out.scale * static_cast<float>(sums[0] + sums[1]);
}

float times_block(const kvell_matrix& m, const uint8_t* block, int row, const kvell_block& x, float acc) {
  for (int group = 0; group < groups_per_block(m); ++group) {
    int sum = 0;
    for (int column = group * m.group; column < (group + 1) * m.group; ++column)
      sum += code_at(block, m.kind, row, column) * x.codes[column];
    acc = std::fmaf(scale_at(m, block, row, group) * x.scale, static_cast<float>(sum), acc);
    if (m.offset == KVELL_NO_OFFSET) continue;
    const float x_sum = m.group == KVELL_BLOCK ? x.sum : group == 0 ? x.low : x.high;
    acc = std::fmaf(offset_at(m, block, row, group), x_sum, acc);
  }
  return acc;
}

template <typename Element>
void for_each_output(const kvell_matrix& m, const Tile& tile, Output out, Element&& element) {
  const int first = tile.first_panel * KVELL_PANEL, last = tile.last_panel * KVELL_PANEL;
  for (int64_t token = tile.first_token; token < tile.last_token; ++token)
    for (int row = first; row < last && row < m.rows; ++row)
      out.data[token * out.stride + m.first_row + row] = element(token, row / KVELL_PANEL, row % KVELL_PANEL);
}

}  // namespace

void quantize_row(const float* x, int columns, kvell_block* out) {
  for (int column = 0; column < columns; column += KVELL_BLOCK, ++out) {
    const int left = columns - column;
    quantize_block(x + column, left < KVELL_BLOCK ? left : KVELL_BLOCK, *out);
  }
}

void matmul_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  const int depth = num_blocks(m.columns);
  for_each_output(m, tile, out, [&](int64_t token, int panel, int row) {
    float acc = 0.0f;
    for (int i = 0; i < depth; ++i) acc = times_block(m, block_at(m, panel, i), row, blocks[token * depth + i], acc);
    return acc;
  });
}

void matmul_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  for_each_output(m, tile, out, [&](int64_t token, int panel, int row) {
    float acc = 0.0f;
    for (int column = 0; column < m.columns; ++column) {
      const uint8_t* block = block_at(m, panel, column / KVELL_BLOCK);
      acc = std::fmaf(value_of(m, block, row, column % KVELL_BLOCK), x[token * x_stride + column], acc);
    }
    return acc;
  });
}

}  // namespace kvell::plain
