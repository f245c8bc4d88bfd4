// Paged grouped-query attention: its C face, and how its work is cut.
//
// T tokens of the step, H query heads, Hkv KV heads, G = H / Hkv heads that share one KV head, D head size. A row is
// one query of one head.
//
// Numbers (whatever the chunks, the batch, the threads and the instruction set): a row's scores are taken over kRange
// positions at a time, from an absolute multiple of kRange; largest score, weights and their sum are found for the
// range as a whole; ranges are merged in ascending order. Every number is one chain of fused multiply-adds, d or
// positions ascending.
#pragma once

#include "kvell.h"

// How keys and values are stored. int8: code * scale, one scale per token and head.
enum kvell_stored : int32_t { KVELL_CACHE_F32 = 0, KVELL_CACHE_BF16 = 1, KVELL_CACHE_INT8 = 2 };

// Consecutive tokens of one sequence. Position p lies in block tables[table + p / block_size].
struct kvell_chunk {
  int64_t row;    // of its first token among the step's T
  int64_t start;  // absolute position of its first token
  int64_t length;
  int64_t table;  // may be before the tables' beginning where a window has left the first blocks
};

// Some queries of a chunk over some ranges of positions, for any KV head.
struct kvell_attention_item {
  int32_t chunk, first_query, num_queries;
  int32_t first_range, end_range;  // of kRange positions each, absolute
  int32_t num_parts;               // 1, or into how many single ranges these queries' positions were split
  int32_t part;                    // which of them this is
  int32_t group;                   // where the parts are counted
  int64_t partial;                 // where the parts' unmerged results begin, in rows per KV head
};

// How much memory the items of a plan need.
struct kvell_attention_plan {
  int64_t num_items, num_groups, partial_rows;
};

// One layer's attention in one step.
struct kvell_attention {
  const float* queries;  // (T, H, D), token t at queries + t * query_stride
  float* out;            // (T, H, D), likewise
  int64_t query_stride, out_stride;
  const void* keys;           // (num_blocks, block_size, Hkv, D), as `stored` says
  const void* values;         // likewise
  const float* key_scales;    // (num_blocks, block_size, Hkv), only for int8
  const float* value_scales;  // likewise
  int32_t stored, block_size, num_heads, num_kv_heads, head_dim;
  int32_t window;  // positions that a query sees, itself included; 0: all
  float scale;     // of the scores
  int32_t num_items;
  const kvell_chunk* chunks;
  const int32_t* tables;
  const kvell_attention_item* items;
  int32_t* counters;  // (num_groups, Hkv), zero before and after
  float* partials;    // (partial_rows, Hkv, kvell_attention_row_floats)
  float* scratch;     // (threads, kvell_attention_scratch_floats), aligned to 64 bytes
};

// Cuts the chunks' attention into items, for every layer with this window. Writes no more than `capacity` items: call
// it again with room for plan->num_items. The bits of the results don't depend on the plan.
KVELL_API void kvell_plan_attention(const kvell_chunk* chunks, int64_t num_chunks, int32_t num_heads,
                                    int32_t num_kv_heads, int32_t window, int32_t threads, kvell_attention_item* items,
                                    int64_t capacity, kvell_attention_plan* plan);
KVELL_API int64_t kvell_attention_row_floats(int32_t head_dim);
KVELL_API int64_t kvell_attention_scratch_floats(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim);
KVELL_API void kvell_attend(kvell_team* team, const kvell_attention* call);

namespace kvell {

constexpr int64_t kRange = 256;         // see above: the only one of these numbers that shows in results
constexpr int64_t kPanel = 16;          // positions whose scores are computed together
constexpr int64_t kRows = 6;            // rows whose scores are computed together
constexpr int64_t kMostRows = 96;       // of an item, unless one query alone has more
constexpr int64_t kValueFloats = 4096;  // of values that are widened at a time

static inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Rows that an item may have: as many whole queries as fit into kMostRows, at least one.
static inline int64_t most_rows(int64_t heads_per_kv) {
  return heads_per_kv >= kMostRows ? heads_per_kv : kMostRows / heads_per_kv * heads_per_kv;
}

// So few rows of a KV head that reading the cache is what takes time, and 16 positions lie in one block.
static inline bool are_few(const kvell_attention& call, int64_t rows) {
  return rows <= kRows && call.block_size % kPanel == 0;
}

// For KV heads kv_head .. kv_head + kv_heads - 1; several only where rows are few, and no more than most_rows in all.
using AttentionItem = void (*)(const kvell_attention& call, const kvell_attention_item& item, int64_t kv_head,
                               int64_t kv_heads, float* scratch);

}  // namespace kvell
