// The head's tiles shared out to the team, and what they brought put together. See head.h.
#include "head.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "layout.h"
#include "ops.h"
#include "threads.h"

namespace kvell {
namespace {

constexpr int64_t SLICE = 64;  // rows at a time: their tile of logits stays in the second-level cache
constexpr int64_t TILE = KVELL_VOCABULARY_TILE;
constexpr int64_t LINE = 64;

int64_t aligned(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

// Where everything lies in the scratch memory: for each row its place among the whole ones; for each thread a tile of
// logits and, for each row, the best that it has found; for each row and tile the largest logit and the sum of
// exponentials.
struct Layout {
  int64_t threads, rows, tiles, most, places_bytes, tile_bytes, list_bytes, thread_bytes;

  Layout(const kvell_team* team, const kvell_head& call)
      : threads(num_threads(team)),
        rows(call.num_rows),
        tiles((call.matrix->rows + TILE - 1) / TILE),
        most(call.most_best),
        places_bytes(aligned(rows * int64_t{sizeof(int64_t)})),
        tile_bytes(std::min(rows, SLICE) * TILE * int64_t{sizeof(float)}),
        list_bytes(aligned(int64_t{sizeof(Best)} + most * int64_t{sizeof(float) + sizeof(int32_t)})),
        thread_bytes(tile_bytes + rows * list_bytes) {}

  int64_t total() const { return places_bytes + threads * thread_bytes + rows * tiles * 2 * int64_t{sizeof(float)}; }
};

class Head {
 public:
  Head(const kvell_team* team, const kvell_head& call)
      : call_(call), layout_(team, call), kernels_(kernels_of(team)), rows_(*kernels_.rows) {}

  int64_t num_slices() const { return (layout_.rows + SLICE - 1) / SLICE; }
  int64_t num_items() const { return layout_.tiles * num_slices(); }

  void prepare() const {
    int64_t place = 0;
    for (int64_t row = 0; row < layout_.rows; ++row) {
      places()[row] = place;
      place += call_.wishes[row].whole;
      for (int64_t thread = 0; thread < layout_.threads; ++thread) {
        Best& found = list(thread, row);
        auto* memory = reinterpret_cast<float*>(&found + 1);
        found = {call_.wishes[row].num_best, 0, memory, reinterpret_cast<int32_t*>(memory + layout_.most), false};
      }
    }
  }

  // One tile of ids for one slice of the rows.
  void run(int64_t item, int worker) const {
    const int64_t tile = item / num_slices(), first_row = item % num_slices() * SLICE, first_id = tile * TILE;
    const int64_t num_ids = std::min<int64_t>(TILE, call_.matrix->rows - first_id);
    const int64_t num_rows = std::min(SLICE, layout_.rows - first_row);
    auto* logits = reinterpret_cast<float*>(thread(worker));
    multiply(first_id, num_ids, first_row, num_rows, logits);
    for (int64_t row = first_row; row < first_row + num_rows; ++row, logits += TILE) {
      const kvell_wish& wish = call_.wishes[row];
      rows_.find_best(logits, num_ids, static_cast<int32_t>(first_id), &list(worker, row));
      if (wish.log_sum) sums(row)[2 * tile + 1] = rows_.sum_exponentials(logits, num_ids, &sums(row)[2 * tile]);
      if (wish.whole)
        std::memcpy(call_.logits + places()[row] * call_.matrix->rows + first_id, logits,
                    static_cast<size_t>(num_ids) * sizeof(float));
    }
  }

  // What the threads found of a row, and its tiles' sums.
  void finish(int64_t row) const {
    int32_t* ids = call_.ids + row * layout_.most;
    float* logits = call_.best + row * layout_.most;
    Best all = {call_.wishes[row].num_best, 0, logits, ids, false};
    for (int64_t thread = 0; thread < layout_.threads; ++thread) {
      const Best& its = list(thread, row);
      all.nan |= its.nan;
      for (int32_t i = 0; i < its.count; ++i) enter(all, its.logits[i], its.ids[i]);
    }
    if (all.nan && all.most) {
      all.count = 1;
      ids[0] = 0;
      logits[0] = std::nanf("");
    }
    call_.counts[row] = all.count;
    call_.log_sums[row] = call_.wishes[row].log_sum && !all.nan ? log_sum(row) : std::nan("");
  }

 private:
  void multiply(int64_t first_id, int64_t num_ids, int64_t first_row, int64_t num_rows, float* out) const {
    kvell_matrix part = *call_.matrix;
    part.data += first_id / KVELL_PANEL * panel_bytes(part);
    part.rows = static_cast<int32_t>(num_ids);
    const Tile tile = {0, num_panels(part.rows), 0, num_rows};
    if (is_float(part.kind)) {
      kernels_.matmul_values(part, tile, call_.x + first_row * call_.x_stride, call_.x_stride, {out, TILE});
    } else {
      kernels_.matmul_codes(part, tile, call_.blocks + first_row * num_blocks(part.columns), {out, TILE});
    }
  }

  double log_sum(int64_t row) const {
    const float* its = sums(row);
    float top = its[0];
    for (int64_t tile = 1; tile < layout_.tiles; ++tile) top = its[2 * tile] > top ? its[2 * tile] : top;
    if (!std::isfinite(top)) return std::nan("");
    double total = 0.0;
    for (int64_t tile = 0; tile < layout_.tiles; ++tile)
      if (its[2 * tile + 1] > 0.0f)
        total += static_cast<double>(its[2 * tile + 1]) * std::exp(static_cast<double>(its[2 * tile]) - top);
    return top + std::log(total);
  }

  int64_t* places() const { return reinterpret_cast<int64_t*>(call_.scratch); }
  uint8_t* thread(int64_t number) const { return call_.scratch + layout_.places_bytes + number * layout_.thread_bytes; }
  Best& list(int64_t number, int64_t row) const {
    return *reinterpret_cast<Best*>(thread(number) + layout_.tile_bytes + row * layout_.list_bytes);
  }
  float* sums(int64_t row) const {
    return reinterpret_cast<float*>(thread(layout_.threads)) + row * layout_.tiles * 2;
  }

  const kvell_head& call_;
  const Layout layout_;
  const Kernels& kernels_;
  const RowKernels& rows_;
};

}  // namespace
}  // namespace kvell

using namespace kvell;

int64_t kvell_head_scratch_bytes(const kvell_team* team, const kvell_head* call) { return Layout(team, *call).total(); }

void kvell_head_rows(kvell_team* team, const kvell_head* call) {
  if (call->num_rows == 0) return;
  const Head head(team, *call);
  head.prepare();
  parallel(team, head.num_items(), [&](int64_t item, int worker) { head.run(item, worker); });
  parallel(team, call->num_rows, [&](int64_t row, int) { head.finish(row); });
}
