// Comparing one set of kernels with another: at start (selftest.cpp) and under the sanitizers (selftest_main.cpp).
#pragma once
#include "kernels.h"

namespace kvell {

// A small generator (Steele, Lea and Flood 2014, splitmix64), so that cases are the same everywhere.
struct Random {
  uint64_t state = 7;

  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  float value() { return static_cast<float>(static_cast<int>(next() % 4001) - 2000) * 0.001f; }
};

struct Case {
  int rows, columns, tokens;
  float magnitude;   // of the activations
  bool odd = false;  // with infinities, subnormal numbers, negative zeros and what is no number among them
  int kind = 0, group = 32, scale_bytes = 2, offset = 0;
};

// A name from the functions below says which kernel gave other bits than the reference; null means that none did.
using Name = const char*;

// Quantising and a product.
Name differing_product(kvell_team* reference, kvell_team* team, const Case& c, Random& random);

// All products: base in every format that a matrix can have.
Name differing_product_of_any(kvell_team* reference, kvell_team* team, const Case& base, Random& random);

// A head's logits, best entries and sums.
Name differing_head(kvell_team* reference, kvell_team* team, const Case& c, Random& random);

// Norms, gates and the like, a row of n numbers at a time; then rotary embedding, cache writes and attention.
Name differing_row(const Kernels& reference, const Kernels& kernels, int64_t n, float magnitude, Random& random);
Name differing_step(kvell_team* reference, kvell_team* team, Random& random);

// Of the faults that are planted in the kernels of a set, one by one, how many the self-test at start misses or misnames.
int unnamed_faults(int isa);

}  // namespace kvell
