// Activations to int8 blocks in AVX2. See kvell.h for the numbers and gemm_plain.cpp for the same in plain C.
#include <cstring>

#include "kernels.h"
#include "quantize_avx2.h"

namespace kvell::avx2 {

void quantize_row(const float* x, int columns, kvell_block* out) {
  int column = 0;
  for (; column + KVELL_BLOCK <= columns; column += KVELL_BLOCK, ++out)
    quantize_block(_mm256_loadu_ps(x + column), _mm256_loadu_ps(x + column + 8), _mm256_loadu_ps(x + column + 16),
                   _mm256_loadu_ps(x + column + 24), *out);
  if (column == columns) return;
  float rest[KVELL_BLOCK] = {};
  std::memcpy(rest, x + column, sizeof(float) * static_cast<size_t>(columns - column));
  quantize_block(_mm256_loadu_ps(rest), _mm256_loadu_ps(rest + 8), _mm256_loadu_ps(rest + 16),
                 _mm256_loadu_ps(rest + 24), *out);
}

}  // namespace kvell::avx2
