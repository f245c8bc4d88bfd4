// Planning attention, and handing its items to the threads. See attention.h.
#include "attention.h"

#include "kernels.h"
#include "threads.h"

namespace {

using namespace kvell;

constexpr int64_t kFewRows = 24;  // below this, cutting queries finer reads the cache more often than it is worth

struct Planner {
  const kvell_chunk* chunks;
  int64_t num_chunks, heads_per_kv, kv_heads, window, threads;
  kvell_attention_item* items;
  int64_t capacity;
  kvell_attention_plan plan{};

  int64_t first_range(const kvell_chunk& chunk, int64_t query) const {
    const int64_t low = window ? chunk.start + query - window + 1 : 0;
    return low > 0 ? low / kRange : 0;
  }
  int64_t end_range(const kvell_chunk& chunk, int64_t last_query) const {
    return (chunk.start + last_query) / kRange + 1;
  }

  // Calls visit(chunk, first query, number of queries, first range, end range); long chunks from their end.
  template <typename Visit>
  void each_block(int64_t queries, Visit&& visit) const {
    for (int64_t i = 0; i < num_chunks; ++i) {
      const kvell_chunk& chunk = chunks[i];
      for (int64_t first = (chunk.length - 1) / queries * queries; first >= 0; first -= queries) {
        const int64_t n = chunk.length - first < queries ? chunk.length - first : queries;
        visit(i, first, n, first_range(chunk, first), end_range(chunk, first + n - 1));
      }
    }
  }

  // Queries per item: many, so that the cache is read seldom, but few enough to give every thread something.
  int64_t block_queries() const {
    for (int64_t queries = most_rows(heads_per_kv) / heads_per_kv;; queries = (queries + 1) / 2) {
      int64_t blocks = 0;
      each_block(queries, [&](int64_t, int64_t, int64_t, int64_t, int64_t) { ++blocks; });
      if (queries * heads_per_kv <= kFewRows || queries == 1 || blocks * kv_heads >= 4 * threads) return queries;
    }
  }

  void make() {
    const int64_t queries = block_queries();
    int64_t all_ranges = 0;
    each_block(queries, [&](int64_t, int64_t, int64_t, int64_t begin, int64_t end) { all_ranges += end - begin; });
    each_block(queries, [&](int64_t chunk, int64_t first, int64_t n, int64_t begin, int64_t end) {
      // An item of more than a quarter of a thread's share would keep the others waiting at the end.
      const bool split = threads > 1 && end - begin > 1 && (end - begin) * 4 * threads > all_ranges * kv_heads;
      kvell_attention_item item{int32_t(chunk), int32_t(first), int32_t(n), int32_t(begin), int32_t(end), 1, 0, 0, 0};
      if (!split) return add(item);
      item.num_parts = int32_t(end - begin);
      item.group = int32_t(plan.num_groups++);
      item.partial = plan.partial_rows;
      plan.partial_rows += item.num_parts * n * heads_per_kv;
      for (int64_t range = begin; range < end; ++range, ++item.part) {
        item.first_range = int32_t(range);
        item.end_range = int32_t(range + 1);
        add(item);
      }
    });
  }

  void add(const kvell_attention_item& item) {
    if (plan.num_items < capacity) items[plan.num_items] = item;
    ++plan.num_items;
  }
};

// KV heads of a tile: all, where every item has few rows and there are enough items for all threads.
int64_t heads_at_once(const kvell_attention& call, int64_t threads) {
  const int64_t group = call.num_heads / call.num_kv_heads;
  if (call.num_items < 4 * threads) return 1;
  for (int64_t i = 0; i < call.num_items; ++i) {
    const int64_t rows = call.items[i].num_queries * group;
    if (!are_few(call, rows) || rows * call.num_kv_heads > most_rows(group)) return 1;
  }
  return call.num_kv_heads;
}

}  // namespace

void kvell_plan_attention(const kvell_chunk* chunks, int64_t num_chunks, int32_t num_heads, int32_t num_kv_heads,
                          int32_t window, int32_t threads, kvell_attention_item* items, int64_t capacity,
                          kvell_attention_plan* plan) {
  Planner planner{chunks, num_chunks, num_heads / num_kv_heads, num_kv_heads, window, threads, items, capacity};
  planner.make();
  *plan = planner.plan;
}

int64_t kvell_attention_row_floats(int32_t head_dim) { return round_up(head_dim, 8) + 8; }

int64_t kvell_attention_scratch_floats(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim) {
  const int64_t rows = most_rows(num_heads / num_kv_heads), width = round_up(head_dim, 8);
  const int64_t values = kValueFloats > width ? kValueFloats : width;
  return round_up(rows * round_up(head_dim, 16) + kPanel * width + rows * kRange + round_up(values, 16) +
                      2 * rows * (width + 8),
                  16);
}

void kvell_attend(kvell_team* team, const kvell_attention* call) {
  const int64_t stride = kvell_attention_scratch_floats(call->num_heads, call->num_kv_heads, call->head_dim);
  const AttentionItem run = kernels_of(team).attention_item(call->stored);
  const int64_t at_once = heads_at_once(*call, kvell_team_threads(team)), tiles = call->num_kv_heads / at_once;
  // Heads of one item follow one another: they read neighbouring memory.
  parallel(team, call->num_items * tiles, [&](int64_t tile, int worker) {
    run(*call, call->items[tile / tiles], tile % tiles * at_once, at_once, call->scratch + worker * stride);
  });
}
