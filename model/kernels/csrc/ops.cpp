// The ops of ops.h: who does which rows, and what a row goes through. The arithmetic is in ops_rows.h.
#include "ops.h"

#include <atomic>
#include <vector>

#include "attention.h"
#include "kernels.h"
#include "threads.h"

namespace {

using namespace kvell;

constexpr int64_t kTileFloats = 4096;  // what a thread takes at a time: some microseconds of work

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls row(t) for all rows of `floats` numbers, several a tile.
template <class Row>
void each_row(kvell_team* team, int64_t num_rows, int64_t floats, Row&& row) {
  const int64_t per_tile = floats >= kTileFloats ? 1 : kTileFloats / (floats > 0 ? floats : 1);
  parallel(team, ceil_div(num_rows, per_tile), [&](int64_t tile, int) {
    const int64_t end = (tile + 1) * per_tile < num_rows ? (tile + 1) * per_tile : num_rows;
    for (int64_t t = tile * per_tile; t < end; ++t) row(t);
  });
}

// A row that nobody else writes, kept by each thread from call to call.
float* spare_row(int64_t floats) {
  thread_local std::vector<float> spare;
  if (int64_t(spare.size()) < floats) spare.resize(size_t(floats));
  return spare.data();
}

// Rotates and stores one token's heads.
struct CacheWriter {
  const RowKernels& rows;
  const kvell_rotary& call;

  void write(const float* x, int64_t token, int64_t head, void* pool, float* scales) const {
    const int64_t at = call.slots[token] * call.num_kv_heads + head;
    const int64_t bytes = call.stored == KVELL_CACHE_F32 ? 4 : call.stored == KVELL_CACHE_BF16 ? 2 : 1;
    rows.store(x, call.stored, call.head_dim, static_cast<uint8_t*>(pool) + at * call.head_dim * bytes,
               scales ? scales + at : nullptr);
  }

  void turn(const float* x, const float* weight, int64_t token, float* out) const {
    const int64_t row = call.table_rows ? call.table_rows[token] : token, half = call.head_dim / 2;
    if (weight) {
      rows.norm(x, weight, call.eps, call.head_dim, out);
      x = out;
    }
    rows.rotate(x, call.cos + row * half, call.sin + row * half, call.head_dim, out);
  }

  void token(int64_t t) const {
    float* head = call.qkv + t * call.qkv_stride;
    for (int64_t h = 0; h < call.num_heads; ++h, head += call.head_dim) turn(head, call.q_norm, t, head);
    float* turned = spare_row(call.head_dim);
    for (int64_t h = 0; h < call.num_kv_heads; ++h, head += call.head_dim) {
      turn(head, call.k_norm, t, turned);
      write(turned, t, h, call.keys, call.key_scales);
    }
    for (int64_t h = 0; h < call.num_kv_heads; ++h, head += call.head_dim)
      write(head, t, h, call.values, call.value_scales);
  }
};

}  // namespace

void kvell_normalize(kvell_team* team, const kvell_norm* call) {
  const RowKernels& rows = *kernels_of(team).rows;
  const Kernels& kernels = kernels_of(team);
  const int64_t n = call->columns, num_blocks = ceil_div(n, KVELL_BLOCK);
  each_row(team, call->num_tokens, n, [&](int64_t t) {
    float* x = call->x + t * call->x_stride;
    if (call->y) {
      const float* y = call->y + t * call->y_stride;
      float* spare = spare_row(n);
      if (call->post_weight) rows.norm(y, call->post_weight, call->eps, n, spare);
      rows.add(x, call->post_weight ? spare : y, n, x);
    }
    if (!call->weight) return;
    float* out = call->out ? call->out + t * call->out_stride : spare_row(n);
    rows.norm(x, call->weight, call->eps, n, out);
    if (call->blocks) kernels.quantize_row(out, call->columns, call->blocks + t * num_blocks);
  });
}

void kvell_rotate_and_store(kvell_team* team, const kvell_rotary* call) {
  const CacheWriter writer{*kernels_of(team).rows, *call};
  const int64_t floats = int64_t(call->num_heads + 2 * call->num_kv_heads) * call->head_dim;
  each_row(team, call->num_tokens, floats, [&](int64_t t) { writer.token(t); });
}

void kvell_store(kvell_team* team, const kvell_rotary* call, const float* keys, int64_t key_stride, const float* values,
                 int64_t value_stride) {
  const CacheWriter writer{*kernels_of(team).rows, *call};
  each_row(team, call->num_tokens, 2 * int64_t(call->num_kv_heads) * call->head_dim, [&](int64_t t) {
    for (int64_t h = 0; h < call->num_kv_heads; ++h) {
      const int64_t at = h * call->head_dim;
      writer.write(keys + t * key_stride + at, t, h, call->keys, call->key_scales);
      writer.write(values + t * value_stride + at, t, h, call->values, call->value_scales);
    }
  });
}

void kvell_activate(kvell_team* team, const kvell_gate* call) {
  const RowKernels& rows = *kernels_of(team).rows;
  const Kernels& kernels = kernels_of(team);
  constexpr int64_t kSpan = 2048;  // columns at a time, whole blocks
  const int64_t n = call->columns, num_blocks = ceil_div(n, KVELL_BLOCK), spans = ceil_div(n, kSpan);
  each_row(team, call->num_tokens * spans, n < kSpan ? n : kSpan, [&](int64_t i) {
    const int64_t t = i / spans, first = i % spans * kSpan, width = n - first < kSpan ? n - first : kSpan;
    const float* gate = call->gate_up + t * call->gate_up_stride + first;
    float* out = call->out ? call->out + t * call->out_stride + first : spare_row(kSpan);
    rows.gate(gate, gate + n, call->activation, width, out);
    if (call->blocks) kernels.quantize_row(out, int(width), call->blocks + t * num_blocks + first / KVELL_BLOCK);
  });
}

void kvell_copy_rows(kvell_team* team, const float* x, int64_t x_stride, const int64_t* row_ids, int64_t num_rows,
                     int32_t columns, float factor, float* out, int64_t out_stride) {
  const RowKernels& rows = *kernels_of(team).rows;
  each_row(team, num_rows, columns, [&](int64_t t) {
    rows.scale(x + (row_ids ? row_ids[t] : t) * x_stride, factor, columns, out + t * out_stride);
  });
}

void kvell_add_bias(kvell_team* team, float* x, int64_t x_stride, int64_t num_tokens, int32_t columns,
                    const float* bias) {
  const RowKernels& rows = *kernels_of(team).rows;
  each_row(team, num_tokens, columns, [&](int64_t t) { rows.add(x + t * x_stride, bias, columns, x + t * x_stride); });
}

int64_t kvell_finite_rows(kvell_team* team, const float* x, int64_t x_stride, int64_t num_tokens, int32_t columns,
                          uint8_t* finite) {
  const RowKernels& rows = *kernels_of(team).rows;
  std::atomic<int64_t> num_bad{0};
  each_row(team, num_tokens, columns, [&](int64_t t) {
    finite[t] = rows.finite(x + t * x_stride, columns);
    if (!finite[t]) num_bad.fetch_add(1, std::memory_order_relaxed);
  });
  return num_bad.load(std::memory_order_relaxed);
}
