// Row-wise operations of a program, for some rows at a time.
#include <cmath>
#include <cstring>

#include "half.h"
#include "layout.h"
#include "program_parts.h"

namespace kvell {
namespace {

int64_t cache_bytes(int32_t stored, int64_t values) { return stored == KVELL_CACHE_F32 ? 4 * values : 2 * values; }

void write(kvell_program& p, const kvell_op& op, int64_t row) {
  const RowKernels& kernels = row_kernels_of(kvell_team_isa(p.team));
  const kvell_view& view = p.views[static_cast<size_t>(op.index)];
  const int width = view.num_kv_heads * view.head_dim;
  const int64_t slot = p.state.views[static_cast<size_t>(op.index)].slots[static_cast<size_t>(row)];
  for (int i = 0; i < 2; ++i) {
    auto* cache = static_cast<uint8_t*>(const_cast<void*>(op.data[i])) + cache_bytes(op.stored, slot * width);
    kernels.store(p.floats(i ? op.in1 : op.in0, row), width, op.stored, cache);
  }
}

bool is_finite(const float* x, int n) {
  uint32_t found = 0;
  for (int i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    found |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return !found;
}

void norm(kvell_program& p, const kvell_op& op, int64_t row) {
  const auto kernel = row_kernels_of(kvell_team_isa(p.team)).norm;
  const float *x = p.floats(op.in0, row), *weight = static_cast<const float*>(op.data[0]);
  float* out = p.floats(op.out, row);
  for (int head = 0; head < op.heads; ++head)
    kernel(x + head * op.head_dim, weight, op.head_dim, op.number, out + head * op.head_dim);
}

void rotate(kvell_program& p, const kvell_op& op, int64_t row) {
  const auto kernel = row_kernels_of(kvell_team_isa(p.team)).rotate;
  const kvell_rope& rope = p.ropes[static_cast<size_t>(op.index)];
  const int64_t at = p.state.positions[static_cast<size_t>(row)] * rope.pairs;
  const float* x = p.floats(op.in0, row);
  float* out = p.floats(op.out, row);
  for (int head = 0; head < op.heads; ++head)
    kernel(x + head * op.head_dim, rope.cosines + at, rope.sines + at, rope.pairs, out + head * op.head_dim);
}

void run_row(kvell_program& p, const kvell_op& op, int64_t row) {
  const int isa = kvell_team_isa(p.team), n = op.in0.columns;
  const float *x = p.floats(op.in0, row), *y = op.in1.buffer < 0 ? nullptr : p.floats(op.in1, row);
  float* out = op.out.buffer < 0 || op.opcode == KVELL_QUANTIZE ? nullptr : p.floats(op.out, row);
  switch (op.opcode) {
    case KVELL_SCALE:
      for (int i = 0; i < n; ++i) out[i] = x[i] * op.number;
      return;
    case KVELL_ADD:
      for (int i = 0; i < n; ++i) out[i] = x[i] + y[i];
      return;
    case KVELL_BIAS:
      y = static_cast<const float*>(op.data[0]);
      for (int i = 0; i < n; ++i) out[i] = x[i] + y[i];
      return;
    case KVELL_NORM: return norm(p, op, row);
    case KVELL_ROTATE: return rotate(p, op, row);
    case KVELL_WRITE: return write(p, op, row);
    case KVELL_SILU: return row_kernels_of(isa).silu(x, y, n, out);
    case KVELL_GELU: return row_kernels_of(isa).gelu(x, y, n, out);
    case KVELL_QUANTIZE: return kernels_of(isa)->quantize_row(x, n, p.blocks(op.out, row));
    case KVELL_GATHER:
      std::memcpy(out, p.floats(op.in0, p.state.wanted[static_cast<size_t>(row)]), static_cast<size_t>(n) * 4);
      return;
    case KVELL_CHECK:
      if (!is_finite(x, n)) p.not_finite.store(true, std::memory_order_relaxed);
      return;
    default: return;
  }
}

}  // namespace

void run_rows(kvell_program& program, const kvell_op& op, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) run_row(program, op, row);
}

}  // namespace kvell
