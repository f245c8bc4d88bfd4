// Row-wise operations of a program, for some rows at a time.
#include <cstring>

#include "cpu.h"
#include "program_parts.h"

namespace kvell {
namespace {

int64_t value_bytes_of(int32_t stored) {
  return stored == KVELL_CACHE_F32 ? 4 : stored == KVELL_CACHE_BF16 ? 2 : 1;
}

struct Slot {
  uint8_t* at;
  int64_t bytes;
};

// Where the keys (part 0) or values (1) of a row are written, all heads.
Slot slot_of(const kvell_program& p, const kvell_op& op, int part, int64_t row) {
  const kvell_view& view = p.views[static_cast<size_t>(op.index)];
  const int64_t slot = p.state.views[static_cast<size_t>(op.index)].slots[static_cast<size_t>(row)];
  const int64_t bytes = int64_t{view.num_kv_heads} * view.head_dim * value_bytes_of(op.stored);
  return {static_cast<uint8_t*>(const_cast<void*>(op.data[part])) + slot * bytes, bytes};
}

void write(kvell_program& p, const kvell_op& op, const RowKernels& kernels, int64_t row) {
  const kvell_view& view = p.views[static_cast<size_t>(op.index)];
  const int64_t slot = p.state.views[static_cast<size_t>(op.index)].slots[static_cast<size_t>(row)];
  const int64_t width = view.head_dim, bytes = width * value_bytes_of(op.stored);
  for (int part = 0; part < 2; ++part) {
    const float* x = p.floats(part ? op.in1 : op.in0, row);
    auto* cache = static_cast<uint8_t*>(const_cast<void*>(op.data[part]));
    auto* scales = static_cast<float*>(const_cast<void*>(op.data[2 + part]));
    for (int64_t head = 0; head < view.num_kv_heads; ++head) {
      const int64_t at = slot * view.num_kv_heads + head;
      kernels.store(x + head * width, op.stored, width, cache + at * bytes, scales ? scales + at : nullptr);
    }
  }
}

void norm(kvell_program& p, const kvell_op& op, const RowKernels& kernels, int64_t row) {
  const float *x = p.floats(op.in0, row), *weight = static_cast<const float*>(op.data[0]);
  float* out = p.floats(op.out, row);
  for (int64_t at = 0; at < op.in0.columns; at += op.head_dim)
    kernels.norm(x + at, weight, op.number, op.head_dim, out + at);
}

void rotate(kvell_program& p, const kvell_op& op, const RowKernels& kernels, int64_t row) {
  const kvell_rope& rope = p.ropes[static_cast<size_t>(op.index)];
  const int64_t angle = p.state.positions[static_cast<size_t>(row)] * rope.pairs;
  const float* x = p.floats(op.in0, row);
  float* out = p.floats(op.out, row);
  for (int64_t at = 0; at < op.in0.columns; at += op.head_dim)
    kernels.rotate(x + at, rope.cosines + angle, rope.sines + angle, op.head_dim, out + at);
}

void run_row(kvell_program& p, const kvell_op& op, const RowKernels& kernels, int64_t row) {
  const int n = op.in0.columns;
  const float *x = p.floats(op.in0, row), *y = op.in1.buffer < 0 ? nullptr : p.floats(op.in1, row);
  float* out = op.out.buffer < 0 || op.opcode == KVELL_OP_QUANTIZE ? nullptr : p.floats(op.out, row);
  switch (op.opcode) {
    case KVELL_OP_SCALE: return kernels.scale(x, op.number, n, out);
    case KVELL_OP_ADD: return kernels.add(x, y, n, out);
    case KVELL_OP_BIAS: return kernels.add(x, static_cast<const float*>(op.data[0]), n, out);
    case KVELL_OP_NORM: return norm(p, op, kernels, row);
    case KVELL_OP_ROTATE: return rotate(p, op, kernels, row);
    case KVELL_OP_WRITE: return write(p, op, kernels, row);
    case KVELL_OP_SILU: return kernels.gate(x, y, KVELL_SILU, n, out);
    case KVELL_OP_GELU: return kernels.gate(x, y, KVELL_GELU_TANH, n, out);
    case KVELL_OP_QUANTIZE: return kernels_of(p.team).quantize_row(x, n, p.blocks(op.out, row));
    case KVELL_OP_CHECK:
      if (!kernels.finite(x, n)) p.not_finite.store(true, std::memory_order_relaxed);
      return;
    default: return;
  }
}

}  // namespace

void fetch_rows(const kvell_program& program, const kvell_op& op, int64_t first, int64_t last) {
  if (op.opcode != KVELL_OP_WRITE) return;
  for (int64_t row = first; row < last; ++row)
    for (int part = 0; part < 2; ++part) {
      const Slot slot = slot_of(program, op, part, row);
      for (int64_t byte = 0; byte < slot.bytes; byte += 64) prefetch_to_write(slot.at + byte);
    }
}

void run_rows(kvell_program& program, const kvell_op& op, int64_t first, int64_t last) {
  const RowKernels& kernels = *kernels_of(program.team).rows;
  for (int64_t row = first; row < last; ++row) {
    if (op.opcode == KVELL_OP_GATHER) {
      const float* from = program.floats(op.in0, program.state.wanted[static_cast<size_t>(row)]);
      std::memcpy(program.floats(op.out, row), from, static_cast<size_t>(op.in0.columns) * sizeof(float));
    } else {
      run_row(program, op, kernels, row);
    }
  }
}

}  // namespace kvell
