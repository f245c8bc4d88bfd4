// Plants a fault in each kernel of an instruction set in turn: the self-test at start must name that very kernel. Part of
// the program of selftest_main.cpp, not of the library.
#include <cstdio>
#include <cstring>

#include "head.h"
#include "selftest.h"

namespace kvell {
namespace {

const Kernels* good = nullptr;  // what the faulty kernels below call first

// One unit in the last place.
void spoil(float& x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits ^= 1;
  std::memcpy(&x, &bits, 4);
}

void quantize_row(const float* x, int columns, kvell_block* out) {
  good->quantize_row(x, columns, out);
  out->codes[0] ^= 1;
}

float& last_of(const kvell_matrix& m, const Tile& tile, Output out) {
  const int end = tile.last_panel * KVELL_PANEL < m.rows ? tile.last_panel * KVELL_PANEL : m.rows;
  return out.data[(tile.last_token - 1) * out.stride + m.first_row + end - 1];
}

template <int KIND>
void matmul_codes(const kvell_matrix& m, const Tile& tile, const kvell_block* blocks, Output out) {
  good->matmul_codes(m, tile, blocks, out);
  if (m.kind == KIND) spoil(last_of(m, tile, out));
}

template <int KIND>
void matmul_values(const kvell_matrix& m, const Tile& tile, const float* x, int64_t x_stride, Output out) {
  good->matmul_values(m, tile, x, x_stride, out);
  if (m.kind == KIND) spoil(last_of(m, tile, out));
}

template <int STORED>
void attend(const kvell_attention& call, const kvell_attention_item& item, int64_t kv_head, int64_t kv_heads,
            float* scratch) {
  good->attention_item(STORED)(call, item, kv_head, kv_heads, scratch);
  const int64_t token = call.chunks[item.chunk].row + item.first_query;
  const int64_t head = kv_head * (call.num_heads / call.num_kv_heads);
  if (item.num_parts == 1) spoil(call.out[token * call.out_stride + head * call.head_dim]);
}

template <int STORED>
AttentionItem attention_item(int32_t stored) {
  return stored == STORED ? attend<STORED> : good->attention_item(stored);
}

void norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  good->rows->norm(x, weight, eps, n, out);
  spoil(out[n - 1]);
}

void add(const float* x, const float* y, int64_t n, float* out) {
  good->rows->add(x, y, n, out);
  spoil(out[n - 1]);
}

void scale(const float* x, float factor, int64_t n, float* out) {
  good->rows->scale(x, factor, n, out);
  spoil(out[n - 1]);
}

template <int ACTIVATION>
void gate(const float* x, const float* up, int32_t activation, int64_t n, float* out) {
  good->rows->gate(x, up, activation, n, out);
  if (activation == ACTIVATION) spoil(out[n - 1]);
}

void rotate(const float* x, const float* cos, const float* sin, int64_t n, float* out) {
  good->rows->rotate(x, cos, sin, n, out);
  spoil(out[n / 2]);
}

template <int STORED>
void store(const float* x, int32_t stored, int64_t n, void* out, float* factor) {
  good->rows->store(x, stored, n, out, factor);
  if (stored == STORED) *static_cast<uint8_t*>(out) ^= 1;
}

bool finite(const float* x, int64_t n) { return good->rows->finite(x, n - 1); }

void find_best(const float* x, int64_t n, int32_t first_id, Best* best) {
  good->rows->find_best(x, n, first_id, best);
  ++best->ids[0];
}

float sum_exponentials(const float* x, int64_t n, float* top) {
  float sum = good->rows->sum_exponentials(x, n, top);
  spoil(sum);
  return sum;
}

int expect_name(Name expected, const Kernels& kernels) {
  kvell_team* team = make_team(1, KVELL_PLAIN, kernels);
  const Name name = kvell_selftest(team);
  kvell_team_destroy(team);
  if (std::strcmp(name, expected) == 0) return 0;
  std::printf("FAILED: a fault in %s was taken for one in %s\n", expected, *name ? name : "nothing");
  return 1;
}

template <typename Field>
int expect_of(Name expected, Field Kernels::*field, Field wrong) {
  Kernels kernels = *good;
  kernels.*field = wrong;
  return expect_name(expected, kernels);
}

template <typename Field>
int expect_of(Name expected, Field RowKernels::*field, Field wrong) {
  RowKernels rows = *good->rows;
  rows.*field = wrong;
  const RowKernels* wrong_rows = &rows;
  return expect_of(expected, &Kernels::rows, wrong_rows);
}

}  // namespace

int unnamed_faults(int isa) {
  good = kernels_of(isa);
  return expect_of("quantising", &Kernels::quantize_row, quantize_row) +
         expect_of("product of 4-bit codes", &Kernels::matmul_codes, matmul_codes<KVELL_U4>) +
         expect_of("product of 5-bit codes", &Kernels::matmul_codes, matmul_codes<KVELL_U5>) +
         expect_of("product of 6-bit codes", &Kernels::matmul_codes, matmul_codes<KVELL_U6>) +
         expect_of("product of 8-bit codes", &Kernels::matmul_codes, matmul_codes<KVELL_S8>) +
         expect_of("product of bfloat16", &Kernels::matmul_values, matmul_values<KVELL_BF16>) +
         expect_of("product of float16", &Kernels::matmul_values, matmul_values<KVELL_F16>) +
         expect_of("product of float32", &Kernels::matmul_values, matmul_values<KVELL_F32>) +
         expect_of("attention", &Kernels::attention_item, attention_item<KVELL_CACHE_F32>) +
         expect_of("attention", &Kernels::attention_item, attention_item<KVELL_CACHE_BF16>) +
         expect_of("attention", &Kernels::attention_item, attention_item<KVELL_CACHE_INT8>) +
         expect_of("norm", &RowKernels::norm, norm) + expect_of("sum of rows", &RowKernels::add, add) +
         expect_of("row times a number", &RowKernels::scale, scale) +
         expect_of("silu gate", &RowKernels::gate, gate<KVELL_SILU>) +
         expect_of("gelu gate", &RowKernels::gate, gate<KVELL_GELU_TANH>) +
         expect_of("rotary embedding", &RowKernels::rotate, rotate) +
         expect_of("float32 cache write", &RowKernels::store, store<KVELL_CACHE_F32>) +
         expect_of("bfloat16 cache write", &RowKernels::store, store<KVELL_CACHE_BF16>) +
         expect_of("int8 cache write", &RowKernels::store, store<KVELL_CACHE_INT8>) +
         expect_of("check for finite numbers", &RowKernels::finite, finite) +
         expect_of("best entries", &RowKernels::find_best, find_best) +
         expect_of("sum of exponentials", &RowKernels::sum_exponentials, sum_exponentials);
}

}  // namespace kvell
