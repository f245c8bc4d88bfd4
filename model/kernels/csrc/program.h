// A model's step as data: a flat list of operations over buffers, checked once, replayed by one call for any batch.
//
// T tokens of the step, L rows whose logits are wanted, B chunks. `model/program.py` makes the list.
//
// Operations are of two sorts. Row-wise ones compute each row of their output from the same row of their inputs: some of
// them in a row, marked as one section, are shared out to the threads by rows, and whoever takes some rows takes them
// through all of them. The others (products, attention, embedding, head) are a section each and share their work out by
// themselves.
// No number depends on how sections are cut.
#pragma once
#include "kvell.h"

constexpr int KVELL_PROGRAM_VERSION = 2;  // of every struct here and what each operation means

enum kvell_opcode : int32_t {
  KVELL_OP_TAKE = 0,      // out = the tokens' rows of matrix data[0]
  KVELL_OP_SCALE = 1,     // out = in0 * number
  KVELL_OP_ADD = 2,       // out = in0 + in1
  KVELL_OP_BIAS = 3,      // out = in0 + data[0]
  KVELL_OP_NORM = 4,      // RMSNorm of each of `heads` parts of the row: weight data[0] (head_dim), epsilon number
  KVELL_OP_ROTATE = 5,    // each of `heads` parts turned by its position, rope table `index`
  KVELL_OP_WRITE = 6,     // in0, in1: keys and values into the cache data[0], data[1] of view `index`;
                          // int8: with scales to data[2], data[3]
  KVELL_OP_SILU = 7,      // out = silu(in0) * in1
  KVELL_OP_GELU = 8,      // out = gelu(in0) * in1, the tanh form
  KVELL_OP_QUANTIZE = 9,  // out = blocks of in0
  KVELL_OP_GATHER = 10,   // out = the wanted rows of in0; begins a section
  KVELL_OP_CHECK = 11,    // the step fails unless in0 is finite
  KVELL_OP_MATMUL = 12,   // out = `count` matrices data[0] times in0 (float kinds), in1 (their blocks: integer kinds)
  KVELL_OP_ATTEND = 13,   // out = attention of in0 over the cache (as WRITE) of view `index`; number: scale of scores
  KVELL_OP_HEAD = 14,     // what is wanted of the logits: the matrix data[0] times in0 or in1, as MATMUL; the last one
  KVELL_NUM_OPCODES = 15,
};

enum kvell_rows : int32_t { KVELL_TOKENS = 0, KVELL_WANTED = 1 };  // how many rows a buffer has: T or L

// An array of rows. offset: bytes from the arena's beginning, or -1 for logits, of which HEAD keeps what is wanted.
struct kvell_buffer {
  int64_t offset;
  int32_t columns;  // floats of a row, or the columns that its blocks stand for
  int32_t rows;     // kvell_rows
  int32_t blocks;   // 1: rows of kvell_block instead of floats
  int32_t reserved;
};

// Columns `column` to `column + columns` - 1 of a buffer; buffer -1: there's no such operand.
struct kvell_operand {
  int32_t buffer, column, columns;
};

struct kvell_op {
  int32_t opcode, version, section, index;
  kvell_operand in0, in1, out;
  int32_t heads, head_dim;
  int32_t count;   // of what data[0] holds: matrices, or floats
  int32_t stored;  // kvell_stored, of WRITE and ATTEND
  float number;
  const void* data[4];
};

// How layers of one KV group and one window see the cache.
struct kvell_view {
  int32_t window;      // 0: all
  int32_t block_size;  // positions
  int64_t num_blocks;
  int32_t num_heads, num_kv_heads, head_dim, reserved;
};

// Cosines and sines by position, (rows, pairs) each.
struct kvell_rope {
  const float *cosines, *sines;
  int64_t rows;
  int32_t pairs, reserved;
};

struct kvell_program_spec {
  int32_t version, op_bytes;  // KVELL_PROGRAM_VERSION, sizeof(kvell_op)
  int64_t num_ops, num_buffers, num_views, num_ropes;
  const kvell_op* ops;
  const kvell_buffer* buffers;
  const kvell_view* views;
  const kvell_rope* ropes;
  uint8_t* arena;  // aligned to 64 bytes; whoever made it keeps it, as all that operations point to
  int64_t arena_bytes;
  int64_t max_tokens;  // T at most
};

// One step. Blocks of the cache: position p of chunk b lies, for view v, in block tables[first_blocks[v * B + b] +
// p / block_size]; what a window has left need not be there.
struct kvell_step {
  int64_t num_chunks, num_tokens, num_tables;
  const int64_t* chunks;  // (B, 6): absolute position of the first token, number of tokens, rows wanted (the last ones),
                          // and of each of these: whole, num_best, log_sum, as in kvell_wish
  const int64_t* tokens;  // (T)
  const int64_t* first_blocks;  // (views, B)
  const int32_t* tables;        // (num_tables)
  float* logits;                // (rows that are wanted whole, columns of the buffer with offset -1)
  int32_t *counts, *ids;        // (L), (L, most_best); these and the next two are what kvell_head says
  float* best;                  // (L, most_best)
  double* log_sums;             // (L)
  int64_t most_best;
  double* seconds;              // of each section, added up; or null
};

enum kvell_outcome : int32_t {
  KVELL_DONE = 0,
  KVELL_NOT_FINITE = 1,  // a checked row isn't finite; logits weren't written
  KVELL_BAD_STEP = 2,    // the step contradicts the program (kvell_program_error says how); nothing was done
  KVELL_NO_MEMORY = 3,
};

struct kvell_program;
// Null where the specification is not sound; then `error` holds one line that says why.
KVELL_API kvell_program* kvell_program_create(kvell_team* team, const kvell_program_spec* spec, char* error,
                                              int64_t error_bytes);
KVELL_API void kvell_program_destroy(kvell_program* program);
KVELL_API int32_t kvell_program_run(kvell_program* program, const kvell_step* step);
KVELL_API const char* kvell_program_error(const kvell_program* program);  // of the last step that failed
