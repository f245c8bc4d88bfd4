// What the files of the program share: the program itself, its checks, a step unpacked, and row-wise operations.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "attention.h"
#include "head.h"
#include "kernels.h"
#include "ops.h"
#include "program.h"

namespace kvell {

// Operations first..last-1, of which the row-wise ones run row by row.
struct Section {
  int first, last;
  bool by_rows;
  int rows;            // kvell_rows of a row-wise section
  int64_t row_floats;  // that a row of it writes: how much work it is
};

// One view in one step.
struct ViewStep {
  std::vector<kvell_chunk> chunks;
  std::vector<int64_t> slots;  // (T): block * block_size + position % block_size
  std::vector<kvell_attention_item> items;
  std::vector<int32_t> counters;
  std::vector<float> partials;
  kvell_attention_plan plan{};
};

struct StepState {
  int64_t num_tokens = 0, num_rows = 0;
  std::vector<int64_t> positions, wanted;  // (T), (L): rows among the T
  std::vector<kvell_wish> wishes;          // (L)
  std::vector<ViewStep> views;
  const kvell_step* step = nullptr;
};

inline bool is_row_wise(int32_t opcode) {
  return opcode != KVELL_OP_TAKE && opcode != KVELL_OP_MATMUL && opcode != KVELL_OP_ATTEND && opcode != KVELL_OP_HEAD;
}

// An empty string when the specification is sound.
std::string fault_of(const kvell_program_spec& spec);

}  // namespace kvell

struct kvell_program {
  kvell_team* team;
  std::vector<kvell_op> ops;
  std::vector<kvell_buffer> buffers;
  std::vector<kvell_view> views;
  std::vector<kvell_rope> ropes;
  std::vector<kvell::Section> sections;
  uint8_t* arena;
  int64_t max_tokens;
  int64_t vocabulary;         // rows of the embedding
  std::vector<float> scratch;  // attention's, for every thread
  std::vector<uint8_t> head_scratch;
  kvell::StepState state;
  std::atomic<bool> not_finite{false};
  std::string error;

  const kvell_buffer& buffer(const kvell_operand& o) const { return buffers[static_cast<size_t>(o.buffer)]; }
  int64_t num_rows(const kvell_operand& o) const {
    return buffer(o).rows == KVELL_TOKENS ? state.num_tokens : state.num_rows;
  }
  int64_t stride(const kvell_operand& o) const { return buffer(o).columns; }
  float* floats(const kvell_operand& o, int64_t row = 0) const {
    const kvell_buffer& b = buffer(o);
    return reinterpret_cast<float*>(arena + b.offset) + row * b.columns + o.column;
  }
  kvell_block* blocks(const kvell_operand& o, int64_t row = 0) const {
    const kvell_buffer& b = buffer(o);
    return reinterpret_cast<kvell_block*>(arena + b.offset) + row * ((b.columns + KVELL_BLOCK - 1) / KVELL_BLOCK);
  }
};

namespace kvell {

// Works out positions, slots, wanted rows and plans of attention. An empty string when the step fits the program.
std::string unpack(kvell_program& program, const kvell_step& step);

// Asks for the memory that an operation will write and that isn't near: each step writes to new places of the cache.
void fetch_rows(const kvell_program& program, const kvell_op& op, int64_t first, int64_t last);

// One row-wise operation for rows first..last-1 of its section.
void run_rows(kvell_program& program, const kvell_op& op, int64_t first, int64_t last);

}  // namespace kvell
