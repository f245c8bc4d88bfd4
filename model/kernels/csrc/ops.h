// Everything between the products and attention: norms, residual sums, rotary embedding, writes to the KV cache, gates.
//
// T tokens, C columns, H query heads, Hkv KV heads, D head size, I intermediate size. A row's result depends on that
// row alone and is the same bits for every instruction set and number of threads. All floats are float32; a row is
// contiguous and rows lie a stride (in floats) apart. model/kernels/__init__.py has each op in torch.
#pragma once

#include "kvell.h"

// Adds to the residual stream and normalises it for what comes next, in one pass over each row:
//     x += y                          or, with post_weight,  x += norm(y, post_weight)
//     out = norm(x, weight)           as floats, as int8 blocks, or both
// where norm(v, w) = v / sqrt(mean(v^2) + eps) * w. Null: y (nothing to add), post_weight, weight (no norm), out,
// blocks.
struct kvell_norm {
  float* x;  // (T, C)
  const float* y;
  const float* post_weight;  // (C)
  const float* weight;       // (C)
  float* out;
  kvell_block* blocks;  // (T, ceil(C / 32))
  int64_t num_tokens, x_stride, y_stride, out_stride;
  int32_t columns;
  float eps;
};

// Queries and keys: norm per head (where there are weights), then rotary embedding; keys and values go to the cache.
struct kvell_rotary {
  float* qkv;                    // (T, (H + 2 Hkv) D): queries are changed in place, keys and values only read
  const float *q_norm, *k_norm;  // (D), or null
  const float *cos, *sin;        // (n, D / 2)
  const int64_t* table_rows;     // (T): which row of cos and sin; null: row t
  const int64_t* slots;          // (T): block * block_size + position % block_size
  void *keys, *values;           // (num_blocks, block_size, Hkv, D), as `stored` (kvell_stored in attention.h) says
  float *key_scales, *value_scales;  // (num_blocks, block_size, Hkv), only for int8
  int64_t num_tokens, qkv_stride;
  int32_t num_heads, num_kv_heads, head_dim, stored;
  float eps;
};

enum kvell_activation : int32_t { KVELL_SILU = 0, KVELL_GELU_TANH = 1 };

// act(gate) * up, as floats, as int8 blocks, or both. gate and up: I columns each, side by side.
struct kvell_gate {
  const float* gate_up;  // (T, 2 I)
  float* out;            // (T, I), or null
  kvell_block* blocks;   // (T, ceil(I / 32)), or null
  int64_t num_tokens, gate_up_stride, out_stride;
  int32_t columns;  // I
  int32_t activation;
};

KVELL_API void kvell_normalize(kvell_team* team, const kvell_norm* call);
KVELL_API void kvell_rotate_and_store(kvell_team* team, const kvell_rotary* call);
KVELL_API void kvell_activate(kvell_team* team, const kvell_gate* call);
// keys and values (T, Hkv, D) as they are -> the cache. Of the call, the fields that speak of queries and tables are
// not looked at.
KVELL_API void kvell_store(kvell_team* team, const kvell_rotary* call, const float* keys, int64_t key_stride,
                           const float* values, int64_t value_stride);
// out[t] = x[rows[t]] * factor; rows null: row t.
KVELL_API void kvell_copy_rows(kvell_team* team, const float* x, int64_t x_stride, const int64_t* rows,
                               int64_t num_rows, int32_t columns, float factor, float* out, int64_t out_stride);
// x[t] += bias for each row.
KVELL_API void kvell_add_bias(kvell_team* team, float* x, int64_t x_stride, int64_t num_tokens, int32_t columns,
                              const float* bias);
// finite[t]: 1 where all of row t is finite, else 0. Returns how many rows are not.
KVELL_API int64_t kvell_finite_rows(kvell_team* team, const float* x, int64_t x_stride, int64_t num_tokens,
                                    int32_t columns, uint8_t* finite);

namespace kvell {

struct Best;

// One row each, in one instruction set. n numbers; outputs may be inputs.
struct RowKernels {
  void (*norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*add)(const float* x, const float* y, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*gate)(const float* gate, const float* up, int32_t activation, int64_t n, float* out);
  void (*rotate)(const float* x, const float* cos, const float* sin, int64_t n, float* out);
  void (*store)(const float* x, int32_t stored, int64_t n, void* out, float* scale);  // scale: int8 only
  bool (*finite)(const float* x, int64_t n);
  // The head's (head.h): enters a tile's logits, the first of which is of first_id, among the best; and the sum of
  // e^(x - top) with top, the largest.
  void (*find_best)(const float* x, int64_t n, int32_t first_id, Best* best);
  float (*sum_exponentials)(const float* x, int64_t n, float* top);
};

}  // namespace kvell
