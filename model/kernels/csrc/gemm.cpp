// Matrix products and quantising, shared out to the team. Decides who computes which outputs; never how they are summed.
#include <algorithm>

#include "kernels.h"
#include "layout.h"
#include "threads.h"

namespace kvell {
namespace {

constexpr int64_t TILE_BYTES = 32 * 1024;   // of weights: a few microseconds of memory traffic
constexpr int64_t TILE_PRODUCTS = 4 << 20;  // some 50 microseconds of multiplying
constexpr int64_t MAX_TOKENS = 128;         // whose activations share the second-level cache

// How one matrix is cut: tiles of `panels` panels x `tokens` tokens, `across` x `down` of them.
struct Cut {
  int panels;
  int64_t tokens, across, down;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// As many panels of a tile as `most` allows, in pairs, but so many that the last tiles don't leave threads without work.
int64_t even_share(int64_t panels, int64_t most, int64_t others, int64_t threads) {
  int64_t best = most, least = INT64_MAX;
  for (int64_t each = most; each >= 2 && 2 * each >= most; each -= 2) {
    const int64_t longest = ceil_div(ceil_div(panels, each) * others, threads) * each;
    if (longest < least) least = longest, best = each;
  }
  return best;
}

Cut cut(const kvell_matrix& m, int64_t num_tokens, int64_t threads) {
  const int64_t slices = ceil_div(num_tokens, MAX_TOKENS);
  const int64_t tokens = ceil_div(ceil_div(num_tokens, slices), 4) * 4;  // whole micro-kernels but for the last
  const int64_t by_bytes = TILE_BYTES / panel_bytes(m);
  const int64_t by_products = TILE_PRODUCTS / (tokens * m.columns * KVELL_PANEL);
  const int64_t most = std::max<int64_t>(2, std::min(by_bytes, by_products) / 2 * 2), down = ceil_div(num_tokens, tokens);
  const int64_t panels = even_share(num_panels(m.rows), most, down, threads);
  return {static_cast<int>(panels), tokens, ceil_div(num_panels(m.rows), panels), down};
}

Tile tile_of(const kvell_matrix& m, const Cut& c, int64_t num_tokens, int64_t index) {
  const int64_t panel = index % c.across * c.panels, token = index / c.across * c.tokens;
  return {static_cast<int>(panel), std::min(static_cast<int>(panel) + c.panels, num_panels(m.rows)), token,
          std::min(token + c.tokens, num_tokens)};
}

}  // namespace
}  // namespace kvell

using namespace kvell;

void kvell_quantize(kvell_team* team, const float* x, int64_t x_stride, int64_t num_tokens, int32_t columns,
                    kvell_block* out) {
  const Kernels& kernels = kernels_of(team);
  const int64_t depth = num_blocks(columns), per_tile = std::max<int64_t>(1, 16 * 1024 / columns);
  parallel(team, ceil_div(num_tokens, per_tile), [&](int64_t tile, int) {
    const int64_t end = std::min((tile + 1) * per_tile, num_tokens);
    for (int64_t t = tile * per_tile; t < end; ++t) kernels.quantize_row(x + t * x_stride, columns, out + t * depth);
  });
}

void kvell_matmul(kvell_team* team, const kvell_matrix* matrices, int32_t num_matrices, int64_t num_tokens,
                  const kvell_block* blocks, const float* x, int64_t x_stride, float* out, int64_t out_stride) {
  constexpr int MOST = 8;  // matrices whose tiles are shared out together
  if (num_tokens == 0) return;
  const Kernels& kernels = kernels_of(team);
  for (; num_matrices > 0; matrices += MOST, num_matrices -= MOST) {
    const int count = std::min(num_matrices, MOST);
    Cut cuts[MOST];
    int64_t ends[MOST], total = 0;
    for (int i = 0; i < count; ++i) {
      cuts[i] = cut(matrices[i], num_tokens, kvell_team_threads(team));
      ends[i] = total += cuts[i].across * cuts[i].down;
    }
    parallel(team, total, [&](int64_t index, int) {
      int i = 0;
      while (index >= ends[i]) ++i;
      const kvell_matrix& m = matrices[i];
      const Tile tile = tile_of(m, cuts[i], num_tokens, index - (i ? ends[i - 1] : 0));
      if (is_float(m.kind)) {
        kernels.matmul_values(m, tile, x, x_stride, {out, out_stride});
      } else {
        kernels.matmul_codes(m, tile, blocks, {out, out_stride});
      }
    });
  }
}
