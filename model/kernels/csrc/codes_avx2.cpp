// The integer product in AVX2: which micro-kernel runs on what, and in which order.
//
// Few tokens: panel after panel in one stream, unpacked on the way; memory is the limit.
// Many tokens:
//
//   for each slice of up to DEPTH blocks (a slice of all tokens' activations stays in the second-level cache)
//     for each pair of panels: unpack 16 rows x DEPTH blocks (15 kB, first-level cache)
//       for each three or four tokens: add the slice to their outputs, and fetch some of the next pair
//
// The sums go through memory between slices, as float32: that changes no bit.
#include "codes_avx2.h"

namespace kvell::avx2 {
namespace {

constexpr int DEPTH = 24;
// Tokens that are faster without unpacking first: there is little to unpack in codes of a byte.
template <int KIND>
constexpr int64_t few() {
  return KIND == KVELL_U4 ? 12 : 32;
}

struct Job {
  const kvell_matrix& m;
  const Tile& tile;
  const kvell_block* blocks;
  Output out;
  int depth;  // blocks in a row

  Lanes lanes(int panel, int64_t token) const {
    const int row = panel * KVELL_PANEL;
    return Lanes(out.data + token * out.stride + m.first_row + row, m.rows - row);
  }
};

// Calls the micro-kernel for `tokens` (1 to 4) tokens and one or two panels.
template <int KIND, int GROUPS, int PANELS, typename Source>
void some_tokens(const Job& job, const std::array<Source, PANELS>& sources, int panel, int64_t token,
                 int tokens, int from, int depth, Ahead ahead) {
  const kvell_block* x = job.blocks + token * job.depth + from;
  const Lanes out[2] = {job.lanes(panel, token), job.lanes(panel + PANELS - 1, token)};
  const int64_t stride = job.out.stride;
  const bool first = from == 0;
  switch (tokens) {
    case 1: return micro<KIND, GROUPS, PANELS, 1>(sources, depth, x, job.depth, out, stride, first, ahead);
    case 2: return micro<KIND, GROUPS, PANELS, 2>(sources, depth, x, job.depth, out, stride, first, ahead);
    case 3: return micro<KIND, GROUPS, PANELS, 3>(sources, depth, x, job.depth, out, stride, first, ahead);
    default: return micro<KIND, GROUPS, PANELS, 4>(sources, depth, x, job.depth, out, stride, first, ahead);
  }
}

// Calls body(token, count) for all tokens of the tile, at most four at a time, in shares as equal as can be.
template <typename Body>
void for_each_few(const Tile& tile, Body&& body) {
  const int64_t tokens = tile.last_token - tile.first_token, shares = (tokens + 3) / 4;
  for (int64_t i = 0; i < shares; ++i) {
    const int64_t first = tokens * i / shares, last = tokens * (i + 1) / shares;
    body(tile.first_token + first, static_cast<int>(last - first));
  }
}

template <int KIND, int GROUPS>
void direct(const Job& job, int panel) {
  const std::array sources{Packed<KIND, GROUPS>(job.m, panel, 0)};
  for_each_few(job.tile, [&](int64_t token, int count) {
    some_tokens<KIND, GROUPS, 1>(job, sources, panel, token, count, 0, job.depth, Ahead{});
  });
}

// What comes after this pair of panels in the tile, spread over the blocks that its tokens take.
Ahead after(const Job& job, int panel, int from, int depth) {
  int next = panel + 2, next_from = from;
  if (next >= job.tile.last_panel) {
    next = job.tile.first_panel;
    next_from = from + depth;
    if (next_from >= job.depth) return {};
  }
  const int64_t shares = (job.tile.last_token - job.tile.first_token + 3) / 4, bytes = block_bytes(job.m);
  const auto at = [&](int number) { return reinterpret_cast<const char*>(block_at(job.m, number, next_from)); };
  return {at(next), at(next + 1 < job.tile.last_panel ? next + 1 : next), (bytes + shares - 1) / shares};
}

template <int KIND, int GROUPS, int PANELS>
void sliced(const Job& job, int panel, int from, int depth) {
  Wide<GROUPS> wide[PANELS][DEPTH];
  const bool offset = job.m.offset != KVELL_NO_OFFSET;
  std::array<Unpacked<KIND, GROUPS>, PANELS> sources;
  for (int p = 0; p < PANELS; ++p) {
    unpack<KIND, GROUPS>(job.m, panel + p, from, depth, wide[p]);
    sources[p] = {wide[p], offset};
  }
  Ahead ahead = after(job, panel, from, depth);
  for_each_few(job.tile, [&](int64_t token, int count) {
    some_tokens<KIND, GROUPS, PANELS>(job, sources, panel, token, count, from, depth, ahead);
    ahead.first += ahead.step * depth;
    ahead.second += ahead.step * depth;
  });
}

template <int KIND, int GROUPS>
void run(const Job& job) {
  const int first = job.tile.first_panel, last = job.tile.last_panel;
  if (job.tile.last_token - job.tile.first_token <= few<KIND>()) {
    for (int panel = first; panel < last; ++panel) direct<KIND, GROUPS>(job, panel);
    return;
  }
  const int slices = (job.depth + DEPTH - 1) / DEPTH, step = (job.depth + slices - 1) / slices;
  for (int from = 0; from < job.depth; from += step) {
    const int depth = job.depth - from < step ? job.depth - from : step;
    int panel = first;
    for (; panel + 2 <= last; panel += 2) sliced<KIND, GROUPS, 2>(job, panel, from, depth);
    if (panel < last) sliced<KIND, GROUPS, 1>(job, panel, from, depth);
  }
}

template <int KIND>
void run_kind(const Job& job) {
  if (job.m.group == KVELL_BLOCK) {
    run<KIND, 1>(job);
  } else {
    run<KIND, 2>(job);
  }
}

}  // namespace

void matmul_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  const Job job{m, tile, blocks, out, num_blocks(m.columns)};
  switch (m.kind) {
    case KVELL_U4: return run_kind<KVELL_U4>(job);
    case KVELL_U5: return run_kind<KVELL_U5>(job);
    case KVELL_U6: return run_kind<KVELL_U6>(job);
    default: return run_kind<KVELL_S8>(job);
  }
}

}  // namespace kvell::avx2
