// The product of bf16, f16 and f32 weights with float32 activations in AVX2, and the quantising of activations.
//
// Micro-kernel: 16 rows x up to 6 tokens (12 accumulators, 2 registers of weights, 1 broadcast), or 32 rows x 1 token so
// that four independent sums hide the latency of the multiply-add. Columns run one by one, upwards:
//
//               token 0 .. token 5
//   panel 0     acc 00  .. acc 05       acc[p][t] = fma(column of panel p, broadcast x[t][column], acc[p][t])
//   panel 1     acc 10  .. acc 15
#include "codes_avx2.h"

namespace kvell::avx2 {

namespace {

// Column `column` (one of a pair, when bf16: both lie in one register) of a panel's block, widened.
template <int KIND>
inline __m256 column_of(const uint8_t* panel, int64_t column) {
  if constexpr (KIND == KVELL_BF16) {
    const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + column / 2 * 32));
    if (column % 2 == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  } else if constexpr (KIND == KVELL_F16) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel + column * 16)));
  } else {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(panel + column * 32));
  }
}

struct Job {
  const kvell_matrix& m;
  const float* x;
  int64_t x_stride;
  Output out;
};

template <int KIND, int PANELS, int TOKENS>
void micro(const Job& job, int panel, int64_t token) {
  const kvell_matrix& m = job.m;
  const uint8_t* w[PANELS];
  for (int p = 0; p < PANELS; ++p) w[p] = block_at(m, panel + p, 0);
  const float* x = job.x + token * job.x_stride;
  __m256 acc[PANELS][TOKENS];
#pragma GCC unroll 6
  for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 4
    for (int p = 0; p < PANELS; ++p) acc[p][t] = _mm256_setzero_ps();

  const auto add = [&](int64_t column) __attribute__((always_inline)) {
    __m256 weights[PANELS];
#pragma GCC unroll 4
    for (int p = 0; p < PANELS; ++p) {
      weights[p] = column_of<KIND>(w[p], column);
      keep_here(weights[p]);
    }
#pragma GCC unroll 6
    for (int t = 0; t < TOKENS; ++t) {
      const __m256 one = _mm256_broadcast_ss(x + t * job.x_stride + column);
#pragma GCC unroll 4
      for (int p = 0; p < PANELS; ++p) {
        acc[p][t] = _mm256_fmadd_ps(weights[p], one, acc[p][t]);
        keep_here(acc[p][t]);
      }
    }
  };
  constexpr int64_t AHEAD = 2048;  // bytes of each panel
  const int64_t panel_length = panel_bytes(m);
  int64_t column = 0;
  for (; column + 2 <= m.columns; column += 2) {
    add(column);
    add(column + 1);
    int64_t ahead = column * KVELL_PANEL * value_bytes(KIND) + AHEAD;
    if (ahead >= panel_length) ahead += (PANELS - 1) * panel_length;  // past its end lie the other panels of this tile
    for (int p = 0; p < PANELS; ++p) _mm_prefetch(reinterpret_cast<const char*>(w[p]) + ahead, _MM_HINT_T0);
  }
  if (column < m.columns) add(column);

#pragma GCC unroll 4
  for (int p = 0; p < PANELS; ++p) {
    const int row = (panel + p) * KVELL_PANEL;
    const Lanes lanes(job.out.data + token * job.out.stride + m.first_row + row, m.rows - row);
#pragma GCC unroll 6
    for (int t = 0; t < TOKENS; ++t) lanes.store(t * job.out.stride, acc[p][t]);
  }
}

template <int KIND, int PANELS>
void tokens_of(const Job& job, const Tile& tile, int panel) {
  int64_t token = tile.first_token;
  for (; token + 6 <= tile.last_token; token += 6) micro<KIND, PANELS, 6>(job, panel, token);
  switch (tile.last_token - token) {
    case 5: return micro<KIND, PANELS, 5>(job, panel, token);
    case 4: return micro<KIND, PANELS, 4>(job, panel, token);
    case 3: return micro<KIND, PANELS, 3>(job, panel, token);
    case 2: return micro<KIND, PANELS, 2>(job, panel, token);
    case 1: return micro<KIND, PANELS, 1>(job, panel, token);
    default: return;
  }
}

template <int KIND>
void run(const Job& job, const Tile& tile) {
  int panel = tile.first_panel;
  if (tile.last_token - tile.first_token == 1)
    for (; panel + 4 <= tile.last_panel; panel += 4) micro<KIND, 4, 1>(job, panel, tile.first_token);
  for (; panel + 2 <= tile.last_panel; panel += 2) tokens_of<KIND, 2>(job, tile, panel);
  if (panel < tile.last_panel) tokens_of<KIND, 1>(job, tile, panel);
}

}  // namespace

void matmul_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  const Job job{m, x, x_stride, out};
  switch (m.kind) {
    case KVELL_BF16: return run<KVELL_BF16>(job, tile);
    case KVELL_F16: return run<KVELL_F16>(job, tile);
    default: return run<KVELL_F32>(job, tile);
  }
}

}  // namespace kvell::avx2
