// One item of attention: some queries of one chunk, all heads of one KV head or of several, over ranges of positions.
//
//     for each range of 256 positions, ascending:
//         scores of all rows, 16 positions at a time      keys are read once for all rows
//         per row: mask, largest score m, weights exp(score - m), their sum l
//         sums of weights * values, some positions at a time  values are read once for all rows
//         merge (m, l, sums) of the range into the row's total
//
// The online softmax of Milakov and Gimelshein 2018 and FlashAttention (Dao et al. 2022), with ranges for steps. An
// item that covers one range of several leaves its result unmerged; whoever brings the last one merges them, in order.
//
// Where rows are few, as in a decode step, time goes into reading the cache: then several KV heads take turns with each
// 16 positions, since their keys lie side by side.
#pragma once

#include "attention_tiles.h"

namespace {

// What an item works with. Per KV head rows = num_queries * G; row r is query r / G of head r % G. All rows: one KV head's
// after the other's.
template <class Stored>
class Item {
 public:
  Item(const kvell_attention& call, const kvell_attention_item& item, int64_t kv_head, int64_t kv_heads, float* scratch)
      : call_(call), item_(item), chunk_(call.chunks[item.chunk]), kv_head_(kv_head), kv_heads_(kv_heads),
        group_(call.num_heads / call.num_kv_heads), rows_(item.num_queries * group_), all_rows_(rows_ * kv_heads),
        width_(round_up(call.head_dim, 8)), row_floats_(width_ + 8), few_(are_few(call, rows_)),
        keys_(call.keys, call.key_scales, call, kv_head), values_(call.values, call.value_scales, call, kv_head) {
    const int64_t most = most_rows(group_);
    queries_ = scratch;
    wide_keys_ = queries_ + most * round_up(call.head_dim, 16);
    scores_ = wide_keys_ + kPanel * width_;
    wide_values_ = scores_ + most * kRange;
    total_ = wide_values_ + round_up(kValueFloats > width_ ? kValueFloats : width_, 16);
    range_ = total_ + most * row_floats_;
  }

  void run() {
    load_queries();
    if (item_.num_parts > 1) {
      run_range(item_.first_range, partial(item_.part));
      if (is_last_part()) finish(merge_parts());
      return;
    }
    run_range(item_.first_range, total_);
    for (int64_t range = item_.first_range + 1; range < item_.end_range; ++range) {
      run_range(range, range_);
      merge(total_, range_);
    }
    finish(total_);
  }

 private:
  // (all_rows_, row_floats_) of one part: per row D sums, padded, then the largest score and the sum of weights.
  float* partial(int64_t part) const {
    return call_.partials + ((item_.partial + part * rows_) * call_.num_kv_heads + kv_head_ * rows_) * row_floats_;
  }
  int64_t position(int64_t row) const { return chunk_.start + item_.first_query + row % rows_ / group_; }
  // Of any row: its query's place in the step, and where its head's numbers begin there.
  int64_t token(int64_t row) const { return chunk_.row + item_.first_query + row % rows_ / group_; }
  int64_t column(int64_t row) const {
    return ((kv_head_ + row / rows_) * group_ + row % group_) * call_.head_dim;
  }

  // A row sees the positions first + [low_end, high_end) of a range; none where high_end <= low_end.
  int64_t low_end(int64_t row, int64_t first) const {
    const int64_t from = call_.window ? position(row) - call_.window + 1 : 0;
    return from > first ? from - first : 0;
  }
  int64_t high_end(int64_t row, int64_t first) const {
    const int64_t end = position(row) + 1 - first;
    return end < kRange ? end : kRange;
  }

  // Scaled, and in panels of kRows rows, (D, kRows) each; a KV head's last panel is narrower.
  void load_queries() {
    for (int64_t row = 0; row < all_rows_; ++row) {
      const float* from = call_.queries + token(row) * call_.query_stride + column(row);
      const int64_t head = row / rows_ * rows_, panel = (row - head) / kRows * kRows;
      const int64_t wide = rows_ - panel < kRows ? rows_ - panel : kRows;
      float* to = queries_ + (head + panel) * call_.head_dim + (row - head - panel);
      for (int64_t d = 0; d < call_.head_dim; ++d) to[d * wide] = from[d] * call_.scale;
    }
  }

  // Fills result: per row the sums, then m and l.
  void run_range(int64_t range, float* result) {
    const int64_t first = range * kRange, low = low_end(0, first), high = high_end(rows_ - 1, first);
    find_slots(first, low, high);
    const int64_t begin = low / kPanel * kPanel, end = round_up(high, kPanel);
    for (int64_t at = begin; at < end; at += kPanel) few_ ? score_few(at, low, high) : score(at, low, high);
    memset(result, 0, size_t(all_rows_ * row_floats_) * sizeof(float));
    for (int64_t row = 0; row < all_rows_; ++row) weigh(row, first, begin, end, result + row * row_floats_);
    if (!few_) return accumulate(low, high, result);
    for (int64_t at = begin; at < end; at += kPanel) accumulate_few(at, low, high, result);
    settle<Stored>(result, all_rows_, call_.head_dim, row_floats_);
  }

  // slots_ of positions first + [low, high).
  void find_slots(int64_t first, int64_t low, int64_t high) {
    int64_t block = (first + low) / call_.block_size, offset = (first + low) % call_.block_size;
    for (int64_t i = low; i < high; ++i) {
      slots_[i] = int64_t(call_.tables[chunk_.table + block]) * call_.block_size + offset;
      if (++offset < call_.block_size) continue;
      offset = 0;
      ++block;
    }
  }

  // The slot of position `at`, a multiple of 16, of a range.
  int64_t panel_slot(int64_t at, int64_t low) const { return at < low ? slots_[low] - (low - at) : slots_[at]; }

  // What to fetch while one of the KV heads is worked on: in the order in which it lies in memory, if that is all heads'.
  Strip<Stored> to_fetch(const CacheHead<Stored>& cache, int64_t at, int64_t low, int64_t head) const {
    if (kv_heads_ == call_.num_kv_heads) return Strip<Stored>::share(cache, panel_slot(at, low), head);
    return Strip<Stored>(cache.head(head), panel_slot(at, low));
  }

  // Scores of all rows with 16 positions of a range. Those outside [low, high) are read, but will not count.
  void score_few(int64_t at, int64_t low, int64_t high) {
    const int64_t begin = low / kPanel * kPanel, end = round_up(high, kPanel), next = at + kAhead;
    const int64_t value = begin + next - end < end ? begin + next - end : begin;  // after the last keys come values
    for (int64_t head = 0; head < kv_heads_; ++head) {
      const Strip<Stored> keys(keys_.head(head), panel_slot(at, low));
      const Strip<Stored> ahead = next < end ? to_fetch(keys_, next, low, head) : to_fetch(values_, value, low, head);
      with_rows(rows_, [&](auto rows) {
        const int64_t row = head * rows_;
        score_strip<rows.number>(queries_ + row * call_.head_dim, keys, ahead, call_.head_dim,
                                 scores_ + row * kRange + at, kRange);
      });
    }
  }

  // result += weights * values over those of 16 positions of a range that lie in [low, high).
  void accumulate_few(int64_t at, int64_t low, int64_t high, float* result) {
    const int64_t from = at < low ? low - at : 0, until = high - at < kPanel ? high - at : kPanel;
    const int64_t next = at + kAhead < high ? at + kAhead : at;
    for (int64_t head = 0; head < kv_heads_; ++head) {
      const Strip<Stored> values(values_.head(head), panel_slot(at, low));
      const Strip<Stored> ahead = to_fetch(values_, next, low, head);
      with_rows(rows_, [&](auto rows) {
        const int64_t row = head * rows_;
        sum_strip<rows.number>(scores_ + row * kRange + at + from, values, ahead, from, until - from, call_.head_dim,
                               result + row * row_floats_, row_floats_);
      });
    }
  }

  // Scores of all rows with 16 positions of a range, of which those in [low, high) count.
  void score(int64_t at, int64_t low, int64_t high) {
    const Panel<Stored> panel(keys_, slots_ + at, low - at, high - at);
    for (int64_t i = at + kAhead; i < at + kAhead + kPanel && i < high; ++i) keys_.fetch(slots_[i]);
    widen_keys(panel, call_.head_dim, wide_keys_);
    for (int64_t row = 0; row < rows_; row += kRows) {
      with_rows(rows_ - row, [&](auto rows) {
        const float* queries = queries_ + row * call_.head_dim;
        score_wide<rows.number>(queries, wide_keys_, call_.head_dim, scores_ + row * kRange + at, kRange);
      });
    }
  }

  // result += weights * values over positions [low, high) of a range.
  void accumulate(int64_t low, int64_t high, float* result) {
    const int64_t step = width_ < kValueFloats ? kValueFloats / width_ : 1;
    for (int64_t at = low; at < high; at += step) {
      const int64_t n = high - at < step ? high - at : step;
      widen_values(values_, slots_ + at, n, wide_values_);
      for (int64_t row = 0; row < rows_; row += kRows) {
        with_rows(rows_ - row, [&](auto rows) {
          float* sums = result + row * row_floats_;
          sum_wide<rows.number>(scores_ + row * kRange + at, wide_values_, width_, n, sums, row_floats_);
        });
      }
    }
  }

  // Scores [begin, end) of a row within a range become weights; what the row does not see weighs nothing.
  void weigh(int64_t row, int64_t first, int64_t begin, int64_t end, float* result) {
    float* scores = scores_ + row * kRange;
    const int32_t from = int32_t(low_end(row, first)), to = int32_t(high_end(row, first));
    if (to <= from) {
      memset(scores + begin, 0, size_t(end - begin) * sizeof(float));
      result[width_] = -__builtin_inff();
      return;
    }
    F8 most = splat(-__builtin_inff());
    for (int64_t i = begin; i < end; i += 8) {
      F8 s = load(scores + i);
      if (i < from || i + 8 > to) {
        s = choose_between(int32_t(i), from, to, s, splat(-__builtin_inff()));
        store(scores + i, s);
      }
      most = max(s, most);
    }
    const float m = largest(most);
    F8 total = splat(0.0f);
    int64_t i = begin;
    while (i < end) {
      for (; i >= from && i + 32 <= to; i += 32) {
        F8 weights[4];
        for (int k = 0; k < 4; ++k) weights[k] = sub(load(scores + i + 8 * k), splat(m));
        exp(weights);
        for (int k = 0; k < 4; ++k) {
          store(scores + i + 8 * k, weights[k]);
          total = add(total, weights[k]);
        }
      }
      if (i == end) break;
      F8 weight = exp(sub(load(scores + i), splat(m)));
      if (i < from || i + 8 > to)
        weight = choose_between(int32_t(i), from, to, weight, splat(0.0f));
      store(scores + i, weight);
      total = add(total, weight);
      i += 8;
    }
    result[width_] = m;
    result[width_ + 1] = sum(total);
  }

  // into and other: results of earlier and later positions. A row that saw nothing on one side takes the other's.
  void merge(float* into, const float* other) {
    for (int64_t row = 0; row < all_rows_; ++row, into += row_floats_, other += row_floats_) merge_row(into, other);
  }
  void merge_row(float* into, const float* other) {
    if (other[width_ + 1] == 0.0f)
      return;
    if (into[width_ + 1] == 0.0f) {
      memcpy(into, other, size_t(row_floats_) * sizeof(float));
      return;
    }
    const float m = into[width_] > other[width_] ? into[width_] : other[width_];
    const F8 mine = exp(splat(into[width_] - m)), its = exp(splat(other[width_] - m));
    for (int64_t d = 0; d < width_; d += 8)
      store(into + d, fma(load(into + d), mine, mul(load(other + d), its)));
    const F8 l = fma(splat(into[width_ + 1]), mine, mul(splat(other[width_ + 1]), its));
    into[width_] = m;
    store_part(into + width_ + 1, l, 1);
  }

  bool is_last_part() {
    int32_t* counter = call_.counters + item_.group * call_.num_kv_heads + kv_head_;
    if (__atomic_add_fetch(counter, 1, __ATOMIC_ACQ_REL) < item_.num_parts)
      return false;
    __atomic_store_n(counter, 0, __ATOMIC_RELAXED);
    return true;
  }
  float* merge_parts() {
    memcpy(total_, partial(0), size_t(all_rows_ * row_floats_) * sizeof(float));
    for (int64_t part = 1; part < item_.num_parts; ++part) merge(total_, partial(part));
    return total_;
  }

  // sums / l. + 0 makes a negative zero positive: which of the two a sum of nothing is depends on the tiles.
  void finish(const float* result) {
    for (int64_t row = 0; row < all_rows_; ++row, result += row_floats_) {
      float* to = call_.out + token(row) * call_.out_stride + column(row);
      const F8 l = splat(result[width_ + 1]);
      for (int64_t d = 0; d < call_.head_dim; d += 8) {
        const F8 x = add(div(load(result + d), l), splat(0.0f));
        if (call_.head_dim - d >= 8)
          store(to + d, x);
        else
          store_part(to + d, x, call_.head_dim - d);
      }
    }
  }

  const kvell_attention& call_;
  const kvell_attention_item& item_;
  const kvell_chunk& chunk_;
  int64_t kv_head_, kv_heads_, group_, rows_, all_rows_, width_, row_floats_;
  bool few_;
  CacheHead<Stored> keys_, values_;
  int64_t slots_[kRange];
  float *queries_, *wide_keys_, *scores_, *wide_values_, *total_, *range_;
};

template <class Stored>
void run_item(const kvell_attention& call, const kvell_attention_item& item, int64_t kv_head, int64_t kv_heads,
              float* scratch) {
  Item<Stored>(call, item, kv_head, kv_heads, scratch).run();
}

AttentionItem item_of(int32_t stored) {
  return stored == KVELL_CACHE_F32 ? run_item<float> : stored == KVELL_CACHE_BF16 ? run_item<Bf16> : run_item<int8_t>;
}

}  // namespace
