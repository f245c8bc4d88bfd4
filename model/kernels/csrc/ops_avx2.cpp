// Row kernels with AVX2 and FMA. Compiled with -mavx2 -mfma; nothing here may run before the processor was asked.
#define KVELL_LANES_AVX2
#include "kernels.h"
#include "ops_rows.h"

const kvell::RowKernels kvell::avx2::ROWS = ROW_KERNELS;
