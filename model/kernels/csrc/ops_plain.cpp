// Row kernels in portable C++: the reference that every other instruction set equals bit for bit.
#include "kernels.h"
#include "ops_rows.h"

const kvell::RowKernels kvell::plain::ROWS = ROW_KERNELS;
