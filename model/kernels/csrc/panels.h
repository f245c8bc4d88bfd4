// The matrix products of an instruction set that multiplies and adds four bytes at a time: written once, in the words of
// panels_neon.h or panels_avx512.h, one of which is included first.
//
// Simple where the AVX2 kernels are elaborate: panel after panel, unpacked on the way, for a few tokens at a time.
//
//   word                               what it is
//   kSide                              panels that lie side by side in one register, or pair of registers
//   kTokens                            tokens at a time: as many as there are registers for
//   Rows, Sums                         a float, and a 32-bit integer, for each of 8 kSide rows
//   fill, times, plus_times, to_floats every row the same; a b; a b + c rounded once; exact integers rounded to floats
//   put(rows, to, n)                   the first n rows to memory
//   scales(side, bytes)                what lies there of each panel: 8 numbers of 2 or 4 bytes
//   column<KIND>(side, c)              column c of panels of float values
//   add_products<KIND>(side, from, to, x, stride, sums)
//                                      registers from..to-1 of the codes of a block (see layout.h) times each token's
#pragma once
#include <type_traits>

#include "kernels.h"
#include "layout.h"

namespace {

using namespace kvell;

// A tile's outputs: `side` panels from `panel` on, as far as the tile and the matrix go.
struct Target {
  float* at;
  int64_t stride;
  int rows;

  Target(const kvell_matrix& m, const Tile& tile, Output out, int panel, int64_t token)
      : at(out.data + token * out.stride + m.first_row + panel * KVELL_PANEL), stride(out.stride),
        rows(least(m.rows, tile.last_panel * KVELL_PANEL, (panel + kSide) * KVELL_PANEL) - panel * KVELL_PANEL) {}

  template <int TOKENS>
  void put_all(const Rows (&values)[TOKENS]) const {
    for (int t = 0; t < TOKENS; ++t) put(values[t], at + t * stride, rows);
  }
  static int least(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }
};

// The blocks `block` of panels from `panel` on. Where the tile ends the last panel is taken twice.
inline Side side_of(const kvell_matrix& m, const Tile& tile, int panel) {
  Side side;
  for (int i = 0; i < kSide; ++i) side.at[i] = block_at(m, panel + i < tile.last_panel ? panel + i : panel, 0);
  return side;
}

// Calls body(first token, how many as a type) for all tokens of the tile, kTokens at most, in shares as equal as can be.
template <int COUNT, class Body>
inline void with_count(int64_t count, Body&& body) {
  if constexpr (COUNT > 1)
    if (count < COUNT) return with_count<COUNT - 1>(count, body);
  body(std::integral_constant<int, COUNT>());
}
template <class Body>
inline void each_few(const Tile& tile, Body&& body) {
  const int64_t tokens = tile.last_token - tile.first_token, shares = (tokens + kTokens - 1) / kTokens;
  for (int64_t i = 0; i < shares; ++i) {
    const int64_t first = tokens * i / shares, last = tokens * (i + 1) / shares;
    with_count<kTokens>(last - first, [&](auto count) { body(tile.first_token + first, count); });
  }
}

// One block: for each group the exact sums of products, then one multiply-add for each row, and one more for offsets.
template <int KIND, int GROUPS, int TOKENS>
inline void add_block(const kvell_matrix& m, const Side& block, const kvell_block* x, int64_t x_stride,
                      Rows (&acc)[TOKENS]) {
  constexpr int REGISTERS = KVELL_BLOCK / 4 / GROUPS;
  const int step = KVELL_PANEL * m.scale_bytes;
  for (int group = 0; group < GROUPS; ++group) {
    Sums sums[TOKENS] = {};
    add_products<KIND>(block, group * REGISTERS, (group + 1) * REGISTERS, x, x_stride, sums);
    const Rows scale = scales(block + (code_bytes(KIND) + group * step), m.scale_bytes);
    for (int t = 0; t < TOKENS; ++t)
      acc[t] = plus_times(times(scale, fill(x[t * x_stride].scale)), to_floats(sums[t]), acc[t]);
    if (m.offset == KVELL_NO_OFFSET) continue;
    const Rows offset = m.offset == KVELL_IMPLIED
                            ? times(fill(-m.zero), scale)
                            : scales(block + (code_bytes(KIND) + (GROUPS + group) * step), m.scale_bytes);
    for (int t = 0; t < TOKENS; ++t) {
      const kvell_block& b = x[t * x_stride];
      acc[t] = plus_times(offset, fill(GROUPS == 1 ? b.sum : group == 0 ? b.low : b.high), acc[t]);
    }
  }
}

template <int KIND, int GROUPS>
void run_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  const int depth = num_blocks(m.columns), stride = block_bytes(m);
  for (int panel = tile.first_panel; panel < tile.last_panel; panel += kSide) {
    const Side side = side_of(m, tile, panel);
    each_few(tile, [&](int64_t token, auto count) {
      Rows acc[count()] = {};
      const kvell_block* x = blocks + token * depth;
      for (int i = 0; i < depth; ++i) add_block<KIND, GROUPS>(m, side + int64_t{i} * stride, x + i, depth, acc);
      Target(m, tile, out, panel, token).put_all(acc);
    });
  }
}

template <int KIND>
void run_kind(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  return m.group == KVELL_BLOCK ? run_codes<KIND, 1>(m, tile, blocks, out) : run_codes<KIND, 2>(m, tile, blocks, out);
}

template <int KIND>
void run_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  for (int panel = tile.first_panel; panel < tile.last_panel; panel += kSide) {
    const Side side = side_of(m, tile, panel);
    each_few(tile, [&](int64_t token, auto count) {
      Rows acc[count()] = {};
      const float* row = x + token * x_stride;
      for (int64_t c = 0; c < m.columns; ++c) {
        const Rows weights = column<KIND>(side, c);
        for (int t = 0; t < count(); ++t) acc[t] = plus_times(weights, fill(row[t * x_stride + c]), acc[t]);
      }
      Target(m, tile, out, panel, token).put_all(acc);
    });
  }
}

void products_of_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  switch (m.kind) {
    case KVELL_U4: return run_kind<KVELL_U4>(m, tile, blocks, out);
    case KVELL_U5: return run_kind<KVELL_U5>(m, tile, blocks, out);
    case KVELL_U6: return run_kind<KVELL_U6>(m, tile, blocks, out);
    default: return run_kind<KVELL_S8>(m, tile, blocks, out);
  }
}

void products_of_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  switch (m.kind) {
    case KVELL_BF16: return run_values<KVELL_BF16>(m, tile, x, x_stride, out);
    case KVELL_F16: return run_values<KVELL_F16>(m, tile, x, x_stride, out);
    default: return run_values<KVELL_F32>(m, tile, x, x_stride, out);
  }
}

}  // namespace
