// Matrix products and the quantising of activations with NEON and its dot product.
#define KVELL_LANES_NEON
#include "panels_neon.h"
#include "panels.h"
#include "quantize_lanes.h"

namespace kvell::neon {

void quantize_row(const float* x, int columns, kvell_block* out) { quantize_lanes(x, columns, out); }

void matmul_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  products_of_codes(m, tile, blocks, out);
}

void matmul_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  products_of_values(m, tile, x, x_stride, out);
}

}  // namespace kvell::neon
