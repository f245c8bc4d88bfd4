// Comparing one team's results with another's: at start (selftest.cpp) and under the sanitizers (selftest_main.cpp).
#pragma once
#include "kvell.h"

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
  float magnitude;  // of the activations
  int kind = 0, group = 32, scale_bytes = 2, offset = 0;
};

// Do both teams quantise and multiply to the same bits?
bool agrees(kvell_team* reference, kvell_team* team, const Case& c, Random& random);

// Do both teams rotate, store, attend, normalise and activate to the same bits?
bool rows_agree(kvell_team* reference, kvell_team* team, Random& random);

// Do both teams say the same of the rows of a head?
bool heads_agree(kvell_team* reference, kvell_team* team, const Case& c, Random& random);

// Runs base in every format that a matrix can have, until one says false.
bool for_each_format(const Case& base, bool (*run)(const Case&, void*), void* context);

}  // namespace kvell
