// The head: states times the vocabulary's matrix, reduced to what is wanted of each row before it leaves the cache.
//
// L rows, V vocabulary. Logits are the bits that kvell_matmul gives. They are computed in tiles of KVELL_VOCABULARY_TILE
// ids, whatever the batch and the threads:
//   best entries   in a total order (larger logits first, of equal ones the lower id), so it does not matter who finds
//                  them in which order
//   log_sum        log of the sum of e^logit: a sum for each tile, relative to the tile's largest logit, in one fixed
//                  order; the tiles' sums added in order of the tiles, in double precision
#pragma once
#include "kvell.h"

constexpr int KVELL_VOCABULARY_TILE = 512;
constexpr int KVELL_MOST_BEST = 64;

// What is wanted of a row.
struct kvell_wish {
  int32_t num_best;  // 0 to KVELL_MOST_BEST
  int32_t log_sum;   // 1: that, too
  int32_t whole;     // 1: the logits themselves, too
};

struct kvell_head {
  const kvell_matrix* matrix;  // V rows; first_row 0
  const kvell_block* blocks;   // for integer kinds
  const float* x;              // for float kinds
  int64_t x_stride, num_rows;
  const kvell_wish* wishes;  // (L)
  float* logits;             // (rows that are wanted whole, V), in order
  int32_t most_best;         // columns of ids and best: at least every num_best
  int32_t* counts;           // (L): how many entries were found: num_best, unless the others are -inf. A row that holds
                             // a NaN has one entry, NaN
  int32_t* ids;              // (L, most_best), best first
  float* best;               // (L, most_best): their logits
  double* log_sums;          // (L): NaN where not wanted, or where the largest logit is not finite
  uint8_t* scratch;          // kvell_head_scratch_bytes, aligned to 64 bytes
};

KVELL_API int64_t kvell_head_scratch_bytes(const kvell_team* team, const kvell_head* call);
KVELL_API void kvell_head_rows(kvell_team* team, const kvell_head* call);

namespace kvell {

// The best entries of a row so far, in memory of the caller's.
struct Best {
  int32_t most, count;
  float* logits;
  int32_t* ids;
  bool nan;  // something was seen that is no number
};

// Whether the entry at `place` comes before this one in the order.
static inline bool comes_before(const Best& best, int32_t place, float logit, int32_t id) {
  return best.logits[place] > logit || (best.logits[place] == logit && best.ids[place] < id);
}

// Puts an entry where it belongs, if it belongs among the best. -inf never does.
static inline void enter(Best& best, float logit, int32_t id) {
  if (!(logit > -__builtin_inff()) || best.most == 0) return;
  if (best.count == best.most && comes_before(best, best.most - 1, logit, id)) return;
  int32_t at = best.count < best.most ? best.count++ : best.most - 1;
  for (; at > 0 && !comes_before(best, at - 1, logit, id); --at) {
    best.logits[at] = best.logits[at - 1];
    best.ids[at] = best.ids[at - 1];
  }
  best.logits[at] = logit;
  best.ids[at] = id;
}

}  // namespace kvell
