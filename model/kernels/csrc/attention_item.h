// One item of attention: some queries of one chunk, all heads of one KV head, over ranges of positions.
//
//     for each range of 256 positions, ascending:
//         scores of all rows, 16 positions at a time      keys are read once for all rows
//         per row: mask, largest score m, weights exp(score - m), their sum l
//         sums of weights * values, some positions at a time  values are read once for all rows
//         merge (m, l, sums) of the range into the row's total
//
// The online softmax of Milakov and Gimelshein 2018 and FlashAttention (Dao et al. 2022), with ranges for steps. An
// item that covers one range of several leaves its result unmerged; whoever brings the last one merges them, in order.
#pragma once

#include "attention_tiles.h"

namespace {

// What an item works with. rows = num_queries * G; row r is query r / G of head r % G.
template <class Stored>
class Item {
 public:
  Item(const kvell_attention& call, const kvell_attention_item& item, int64_t kv_head, float* scratch)
      : call_(call), item_(item), chunk_(call.chunks[item.chunk]), kv_head_(kv_head),
        group_(call.num_heads / call.num_kv_heads), rows_(item.num_queries * group_),
        width_(round_up(call.head_dim, 8)), row_floats_(width_ + 8),
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
  // (rows_, row_floats_) of one part: per row D sums, padded, then the largest score and the sum of weights.
  float* partial(int64_t part) const {
    return call_.partials + ((item_.partial + part * rows_) * call_.num_kv_heads + kv_head_ * rows_) * row_floats_;
  }
  int64_t position(int64_t row) const { return chunk_.start + item_.first_query + row / group_; }

  // A row sees the positions first + [low_end, high_end) of a range; none where high_end <= low_end.
  int64_t low_end(int64_t row, int64_t first) const {
    const int64_t from = call_.window ? position(row) - call_.window + 1 : 0;
    return from > first ? from - first : 0;
  }
  int64_t high_end(int64_t row, int64_t first) const {
    const int64_t end = position(row) + 1 - first;
    return end < kRange ? end : kRange;
  }

  // Scaled, and in panels of kRows rows, (D, kRows) each; the last panel is narrower.
  void load_queries() {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t token = chunk_.row + item_.first_query + row / group_;
      const int64_t head = kv_head_ * group_ + row % group_;
      const float* from = call_.queries + token * call_.query_stride + head * call_.head_dim;
      const int64_t panel = row / kRows * kRows;
      const int64_t wide = rows_ - panel < kRows ? rows_ - panel : kRows;
      float* to = queries_ + panel * call_.head_dim + (row - panel);
      for (int64_t d = 0; d < call_.head_dim; ++d)
        to[d * wide] = from[d] * call_.scale;
    }
  }

  // Fills result: per row the sums, then m and l.
  void run_range(int64_t range, float* result) {
    const int64_t first = range * kRange, low = low_end(0, first), high = high_end(rows_ - 1, first);
    find_slots(first, low, high);
    const int64_t begin = low / kPanel * kPanel, end = round_up(high, kPanel);
    for (int64_t at = begin; at < end; at += kPanel) score(at, low, high);
    memset(result, 0, size_t(rows_ * row_floats_) * sizeof(float));
    for (int64_t row = 0; row < rows_; ++row) weigh(row, first, begin, end, result + row * row_floats_);
    accumulate(low, high, result);
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

  // Scores of all rows with 16 positions of a range, of which those in [low, high) count.
  void score(int64_t at, int64_t low, int64_t high) {
    const Panel<Stored> panel(keys_, slots_ + at, low - at, high - at);
    if (rows_ <= kRows) {
      // After the last keys come the first values.
      const int64_t next = at + kAhead, value = low + next - round_up(high, kPanel);
      const Panel<Stored> ahead = next < high ? Panel<Stored>(keys_, slots_ + next, 0, high - next)
                                              : Panel<Stored>(values_, slots_ + value, 0, high - value);
      with_rows(rows_, [&](auto rows) {
        score_stored<rows.number>(queries_, panel, ahead, call_.head_dim, scores_ + at, kRange);
      });
      return;
    }
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
    if (rows_ <= kRows) {
      with_rows(rows_, [&](auto rows) {
        sum_stored<rows.number>(scores_ + low, values_, slots_ + low, high - low, result, row_floats_);
      });
      return;
    }
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
    for (int64_t i = begin; i < end; i += 8) {
      F8 weight = exp(sub(load(scores + i), splat(m)));
      if (i < from || i + 8 > to)
        weight = choose_between(int32_t(i), from, to, weight, splat(0.0f));
      store(scores + i, weight);
      total = add(total, weight);
    }
    result[width_] = m;
    result[width_ + 1] = sum(total);
  }

  // into and other: results of earlier and later positions. A row that saw nothing on one side takes the other's.
  void merge(float* into, const float* other) {
    for (int64_t row = 0; row < rows_; ++row, into += row_floats_, other += row_floats_)
      merge_row(into, other);
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
    memcpy(total_, partial(0), size_t(rows_ * row_floats_) * sizeof(float));
    for (int64_t part = 1; part < item_.num_parts; ++part) merge(total_, partial(part));
    return total_;
  }

  // sums / l. + 0 makes a negative zero positive: which of the two a sum of nothing is depends on the tiles.
  void finish(const float* result) {
    for (int64_t row = 0; row < rows_; ++row, result += row_floats_) {
      const int64_t token = chunk_.row + item_.first_query + row / group_;
      float* to = call_.out + token * call_.out_stride + (kv_head_ * group_ + row % group_) * call_.head_dim;
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
  int64_t kv_head_, group_, rows_, width_, row_floats_;
  CacheHead<Stored> keys_, values_;
  int64_t slots_[kRange];
  float *queries_, *wide_keys_, *scores_, *wide_values_, *total_, *range_;
};

template <class Stored>
void run_item(const kvell_attention& call, const kvell_attention_item& item, int64_t kv_head, float* scratch) {
  Item<Stored>(call, item, kv_head, scratch).run();
}

AttentionItem item_of(int32_t stored) {
  return stored == KVELL_CACHE_F32 ? run_item<float> : stored == KVELL_CACHE_BF16 ? run_item<Bf16> : run_item<int8_t>;
}

}  // namespace
