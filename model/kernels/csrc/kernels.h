// What an instruction set provides: the kernels as the threaded drivers call them. Each does one tile, one row or one item;
// none knows threads. Every one gives the bits of plain C (gemm_plain.cpp, ops_plain.cpp, attention_plain.cpp).
//
// A new instruction set: its number in kvell.h, its line in KVELL_SET below and its table in isa.cpp, files named *_SET.cpp
// with its flags in setup.py and the Makefile. It may borrow what it lacks from another set, in its table. A new kernel: a
// field here, an entry in every table, and its comparison with plain C in selftest.cpp, which runs at start.
#pragma once
#include "attention.h"
#include "kvell.h"
#include "ops.h"

namespace kvell {

// Which outputs a call computes: panels first_panel..last_panel-1 of the matrix for tokens first_token..last_token-1.
struct Tile {
  int first_panel, last_panel;
  int64_t first_token, last_token;
};

// Where the products go: out[t * stride + m.first_row + row].
struct Output {
  float* data;
  int64_t stride;
};

struct Kernels {
  // One token's columns -> ceil(columns / 32) blocks.
  void (*quantize_row)(const float* x, int columns, kvell_block* out);
  // Integer kinds; blocks holds ceil(columns / 32) of them for each token.
  void (*matmul_codes)(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out);
  // Float kinds.
  void (*matmul_values)(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out);
  // Norms, gates, rotary embedding and the like: see ops.h.
  const RowKernels* rows;
  // The kernel for keys and values stored so (kvell_stored): see attention.h.
  AttentionItem (*attention_item)(int32_t stored);
};

// The functions of one set, in a namespace of its own.
#define KVELL_SET(set)                                                                                           \
  namespace set {                                                                                                \
  void quantize_row(const float* x, int columns, kvell_block* out);                                              \
  void matmul_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out);             \
  void matmul_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out);     \
  extern const RowKernels ROWS;                                                                                  \
  AttentionItem attention_item(int32_t stored);                                                                  \
  }
KVELL_SET(plain)
KVELL_SET(avx2)
KVELL_SET(avx512)
KVELL_SET(neon)
#undef KVELL_SET

// Null where the library was built without that instruction set or the processor lacks it.
const Kernels* kernels_of(int isa);
// Those that a team's drivers call.
const Kernels& kernels_of(const kvell_team* team);
// A team with these kernels, which must outlive it; null where the system gives no more threads.
kvell_team* make_team(int threads, int isa, const Kernels& kernels);

}  // namespace kvell
