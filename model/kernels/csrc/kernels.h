// The kernels of one instruction set, as the threaded drivers call them. Each writes one tile; none knows threads.
#pragma once
#include "kvell.h"

namespace kvell {

// Which outputs a call computes: panels first_panel..last_panel-1 of the matrix for tokens first_token..last_token-1.
struct Tile {
  int first_panel, last_panel;
  int64_t first_token, last_token;
};

// Where the products go: out[t * stride + m.first_row + row].
struct Output {
  float* data;
  int64_t stride;
};

struct Kernels {
  // One token's columns -> ceil(columns / 32) blocks.
  void (*quantize_row)(const float* x, int columns, kvell_block* out);
  // Integer kinds; blocks holds ceil(columns / 32) of them for each token.
  void (*matmul_codes)(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out);
  // Float kinds.
  void (*matmul_values)(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out);
};

// Null where the library was built without that instruction set or the processor lacks it.
const Kernels* kernels_of(int isa);

extern const Kernels PLAIN_KERNELS;
#if defined(KVELL_BUILD_AVX2)
extern const Kernels AVX2_KERNELS;
#endif
#if defined(KVELL_BUILD_AVX512)
extern const Kernels AVX512_KERNELS;
#endif
#if defined(KVELL_BUILD_NEON)
extern const Kernels NEON_KERNELS;
#endif

}  // namespace kvell
