// The integer product in AVX2: which micro-kernel runs on what, and in which order.
//
// Few tokens: panels one after the other, unpacked on the way, each read once. Many tokens:
//
//   for each slice of DEPTH blocks (a slice of all tokens' activations stays in the second-level cache)
//     for each pair of panels: unpack 16 rows x DEPTH blocks (10 kB, first-level cache)
//       for each four tokens: add the slice to their outputs
//
// The sums go through memory between slices, as float32: that changes no bit.
#include "codes_avx2.h"

namespace kvell::avx2 {
namespace {

constexpr int DEPTH = 16;

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
void some_tokens(const Job& job, const std::array<Source, PANELS>& sources, int panel, int64_t token, int tokens, int from, int depth) {
  const kvell_block* x = job.blocks + token * job.depth + from;
  const Lanes out[2] = {job.lanes(panel, token), job.lanes(panel + PANELS - 1, token)};
  const int64_t stride = job.out.stride;
  const bool first = from == 0;
  switch (tokens) {
    case 1: return micro<KIND, GROUPS, PANELS, 1>(sources, depth, x, job.depth, out, stride, first);
    case 2: return micro<KIND, GROUPS, PANELS, 2>(sources, depth, x, job.depth, out, stride, first);
    case 3: return micro<KIND, GROUPS, PANELS, 3>(sources, depth, x, job.depth, out, stride, first);
    default: return micro<KIND, GROUPS, PANELS, 4>(sources, depth, x, job.depth, out, stride, first);
  }
}

template <int PANELS, typename Make>
auto sources_of(Make&& make) {
  if constexpr (PANELS == 1) {
    return std::array{make(0)};
  } else {
    return std::array{make(0), make(1)};
  }
}

template <int KIND, int GROUPS, int PANELS>
void direct(const Job& job, int panel) {
  const auto sources = sources_of<PANELS>([&](int p) { return Packed<KIND, GROUPS>(job.m, panel + p, 0); });
  const auto tokens = static_cast<int>(job.tile.last_token - job.tile.first_token);
  some_tokens<KIND, GROUPS, PANELS>(job, sources, panel, job.tile.first_token, tokens, 0, job.depth);
}

template <int KIND, int GROUPS, int PANELS>
void sliced(const Job& job, int panel, int from, int depth) {
  Wide<GROUPS> wide[PANELS][DEPTH];
  const bool offset = job.m.offset != KVELL_NO_OFFSET;
  const auto sources = sources_of<PANELS>([&](int p) { return Unpacked<KIND, GROUPS>{wide[p], offset}; });
  for (int p = 0; p < PANELS; ++p) unpack<KIND, GROUPS>(job.m, panel + p, from, depth, wide[p]);
  for (int64_t token = job.tile.first_token; token < job.tile.last_token; token += 4) {
    const auto left = static_cast<int>(job.tile.last_token - token);
    some_tokens<KIND, GROUPS, PANELS>(job, sources, panel, token, left < 4 ? left : 4, from, depth);
  }
}

template <int KIND, int GROUPS>
void run(const Job& job) {
  const int last = job.tile.last_panel;
  if (job.tile.last_token - job.tile.first_token <= 4) {
    int panel = job.tile.first_panel;
    for (; panel + 2 <= last; panel += 2) direct<KIND, GROUPS, 2>(job, panel);
    if (panel < last) direct<KIND, GROUPS, 1>(job, panel);
    return;
  }
  for (int from = 0; from < job.depth; from += DEPTH) {
    const int depth = job.depth - from < DEPTH ? job.depth - from : DEPTH;
    int panel = job.tile.first_panel;
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
