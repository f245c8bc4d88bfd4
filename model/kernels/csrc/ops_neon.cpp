// Row kernels with NEON.
#define KVELL_LANES_NEON
#include "kernels.h"
#include "ops_rows.h"

const kvell::RowKernels kvell::neon::ROWS = ROW_KERNELS;
