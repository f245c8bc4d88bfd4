// The face of the native library: a plain C ABI, loaded by model/kernels/native.py with ctypes.
//
// T tokens, R rows (outputs), C columns (inputs). A "block" is 32 columns, a "panel" is 8 rows of a matrix.
//
// Numbers (every kernel, every instruction set, every T, tile shape and thread count gives the same bits):
//   integer weights   w[r,c] = scale[r,g] * code[r,c] + offset[r,g], group g = c / group, group 32 or 16.
//   activations       per token and block: scale = max|x| / 127, code = round to nearest even(x * (127 / max|x|)).
//   product           groups ascending: acc = fma(w.scale * x.scale, (float)sum(w.code * x.code), acc), then, where the
//                     matrix has offsets, acc = fma(w.offset, x.scale * sum(x.code), acc).
//   float weights     columns ascending: acc = fma(w, x, acc).
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#define KVELL_API extern "C" __declspec(dllexport)
#else
#define KVELL_API extern "C" __attribute__((visibility("default")))
#endif

constexpr int KVELL_ABI = 3;  // grows with every change that an old model/kernels/native.py couldn't use
constexpr int KVELL_PANEL = 8;
constexpr int KVELL_BLOCK = 32;

// Instruction sets, in the order in which they are preferred.
enum kvell_isa : int32_t { KVELL_PLAIN = 0, KVELL_AVX2 = 1, KVELL_AVX512 = 2, KVELL_NEON = 3 };

// What a matrix holds. The unsigned kinds promise the range of their codes: that decides how many products fit 16 bits.
enum kvell_kind : int32_t {
  KVELL_U4 = 0,    // 0..15, two a byte
  KVELL_U5 = 1,    // 0..31, one a byte, like all that follow
  KVELL_U6 = 2,    // 0..63
  KVELL_S8 = 3,    // -128..127
  KVELL_BF16 = 4,  // no groups, no scales
  KVELL_F16 = 5,
  KVELL_F32 = 6,
};

enum kvell_offset : int32_t {
  KVELL_NO_OFFSET = 0,
  KVELL_STORED = 1,   // beside the scales, in their type
  KVELL_IMPLIED = 2,  // offset = -zero * scale, zero a power of two: nothing is stored and nothing is rounded
};

// A matrix in panels (see layout.h). Plain data; whoever made it owns `data`.
struct kvell_matrix {
  int32_t rows, columns;
  int32_t kind;         // kvell_kind
  int32_t group;        // 32 or 16; 0 for float kinds
  int32_t scale_bytes;  // 2 (f16) or 4 (f32); 0 for float kinds
  int32_t offset;       // kvell_offset
  float zero;
  int32_t first_row;  // in the output: several matrices may write side by side
  uint8_t* data;      // kvell_matrix_bytes() of it, aligned to 64 bytes
};

// One token's 32 columns. sum = scale * sum(codes); low and high are the same for columns 0..15 and 16..31.
// A block whose largest magnitude is below 2^-100 counts as zeros; one with an infinity or NaN has scale and sums NaN.
struct kvell_block {
  int8_t codes[KVELL_BLOCK];
  float scale, sum, low, high;
};

// Threads that share work, and the instruction set that they use. threads counts the caller.
struct kvell_team;
KVELL_API int32_t kvell_abi();
KVELL_API int32_t kvell_has_isa(int32_t isa);                      // compiled in, and this processor has it
KVELL_API kvell_team* kvell_team_create(int32_t threads, int32_t isa);  // null when that can't be had
KVELL_API void kvell_team_destroy(kvell_team* team);
KVELL_API int32_t kvell_team_threads(const kvell_team* team);
KVELL_API int32_t kvell_team_isa(const kvell_team* team);
// The team's kernels against plain C on small cases of every kind: the name of the first that gives other bits, an empty
// one when none does. Takes some milliseconds.
KVELL_API const char* kvell_selftest(kvell_team* team);

// Packing. first_row is a multiple of 8, and num_rows is one too, unless they are the matrix's last rows.
KVELL_API int64_t kvell_matrix_bytes(const kvell_matrix* matrix);
// codes (num_rows, C) one a byte; scales and offsets (num_rows, ceil(C / group)) float32, rounded to the matrix's scale
// type; offsets may be null unless STORED.
KVELL_API void kvell_pack_codes(kvell_team* team, const kvell_matrix* matrix, int32_t first_row, int32_t num_rows,
                                const uint8_t* codes, const float* scales, const float* offsets);
// values (num_rows, C) in the matrix's own float kind.
KVELL_API void kvell_pack_values(kvell_team* team, const kvell_matrix* matrix, int32_t first_row, int32_t num_rows,
                                 const void* values);
// Blocks as GGUF stores them, by ggml's number of the type. `kvell_gguf_format` fills in kind, group, scale_bytes, offset
// and zero of the matrix that holds them without rounding, and says 0 where there is no such type; C is a multiple of
// the type's block length.
KVELL_API int32_t kvell_gguf_format(int32_t gguf_type, kvell_matrix* matrix);
KVELL_API void kvell_pack_gguf(kvell_team* team, const kvell_matrix* matrix, int32_t first_row, int32_t num_rows,
                               int32_t gguf_type, const uint8_t* data);
// Row ids[t] of the matrix -> out (T, C): fma(scale, code, offset).
KVELL_API void kvell_take(kvell_team* team, const kvell_matrix* matrix, const int64_t* ids, int64_t num_tokens,
                          float* out, int64_t out_stride);

// x (T, C) with x_stride floats between rows -> out (T, ceil(C / 32)) blocks; columns past C count as zeros.
KVELL_API void kvell_quantize(kvell_team* team, const float* x, int64_t x_stride, int64_t num_tokens, int32_t columns,
                              kvell_block* out);
// out[t, m.first_row + r] = sum_c m[r, c] * x[t, c] for all matrices m of the list, which have the same columns.
// blocks is needed by integer kinds, x (with x_stride) by float kinds; the other may be null.
KVELL_API void kvell_matmul(kvell_team* team, const kvell_matrix* matrices, int32_t num_matrices, int64_t num_tokens,
                            const kvell_block* blocks, const float* x, int64_t x_stride, float* out,
                            int64_t out_stride);
