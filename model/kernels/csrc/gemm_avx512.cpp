// Matrix products with AVX-512 and VNNI; what else that set needs it takes from AVX2 (isa.cpp). Nobody has run this on
// such a processor yet: see docs/decisions/0009 for what was checked, and how.
#include "panels_avx512.h"
#include "panels.h"

namespace kvell::avx512 {

void matmul_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  products_of_codes(m, tile, blocks, out);
}

void matmul_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  products_of_values(m, tile, x, x_stride, out);
}

}  // namespace kvell::avx512
