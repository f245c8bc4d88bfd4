// Row kernels with AVX2 and FMA. Compiled with -mavx2 -mfma; nothing here may run before the processor was asked.
#define KVELL_LANES_AVX2
#include "ops_rows.h"

const kvell::RowKernels kvell::AVX2_ROWS = ROWS;
