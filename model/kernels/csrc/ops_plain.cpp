// Row kernels in portable C++: the reference that every other instruction set equals bit for bit.
#include "ops_rows.h"

const kvell::RowKernels kvell::PLAIN_ROWS = ROWS;
