// Is a program sound? Every operand inside its buffer, every buffer inside the arena, every size what the operation needs.
//
// After this, replaying looks at nothing but the step.
#include <cstdio>

#include "layout.h"
#include "program_parts.h"

namespace kvell {
namespace {

const char* const NAMES[KVELL_NUM_OPCODES] = {"take",     "scale",  "add",   "bias",   "norm",   "rotate", "write",
                                              "silu",     "gelu",   "quantize", "gather", "check", "matmul", "attend", "head"};

// Which operands an operation has, and what else.
struct Needs {
  bool in0, in1, out;
  int num_data;
};
constexpr Needs NEEDS[KVELL_NUM_OPCODES] = {
    {false, false, true, 1},  // take
    {true, false, true, 0},   // scale
    {true, true, true, 0},    // add
    {true, false, true, 1},   // bias
    {true, false, true, 1},   // norm
    {true, false, true, 0},   // rotate
    {true, true, false, 2},   // write
    {true, true, true, 0},    // silu
    {true, true, true, 0},    // gelu
    {true, false, true, 0},   // quantize
    {true, false, true, 0},   // gather
    {true, false, false, 0},  // check
    {false, false, true, 1},  // matmul: either or both of its inputs
    {true, false, true, 2},   // attend
    {false, false, true, 1},  // head: as matmul
};

struct Checker {
  const kvell_program_spec& spec;

  const kvell_buffer& buffer(const kvell_operand& o) const { return spec.buffers[o.buffer]; }

  std::string buffers() const {
    for (int64_t i = 0; i < spec.num_buffers; ++i) {
      const kvell_buffer& b = spec.buffers[i];
      const int64_t row = b.blocks ? num_blocks(b.columns) * int64_t{sizeof(kvell_block)} : 4 * int64_t{b.columns};
      const bool placed = b.offset >= 0 && b.offset % 64 == 0 && b.offset + row * spec.max_tokens <= spec.arena_bytes;
      const bool logits = b.offset == -1 && !b.blocks && b.rows == KVELL_WANTED;
      if (b.columns < 1 || b.rows < 0 || b.rows > KVELL_WANTED || !(placed || logits))
        return "buffer " + std::to_string(i) + " does not fit the arena";
    }
    return {};
  }

  std::string tables() const {
    for (int64_t i = 0; i < spec.num_views; ++i) {
      const kvell_view& v = spec.views[i];
      if (v.window < 0 || v.block_size < 1 || v.num_blocks < 1 || v.num_kv_heads < 1 || v.head_dim < 1 ||
          v.num_heads < 1 || v.num_heads % v.num_kv_heads)
        return "view " + std::to_string(i) + " has impossible sizes";
    }
    for (int64_t i = 0; i < spec.num_ropes; ++i) {
      const kvell_rope& r = spec.ropes[i];
      if (!r.cosines || !r.sines || r.rows < 1 || r.pairs < 1) return "rope table " + std::to_string(i) + " is empty";
    }
    return {};
  }

  // `blocks`, `logits`: may it hold those, must it?
  std::string operand(const kvell_operand& o, bool needed, bool blocks, bool logits = false) const {
    if (!needed) return o.buffer == -1 ? "" : "has an operand too many";
    if (o.buffer < 0 || o.buffer >= spec.num_buffers) return "has an operand that is no buffer";
    const kvell_buffer& b = buffer(o);
    if ((b.blocks != 0) != blocks) return "mixes floats and blocks";
    if ((b.offset == -1) != logits) return logits ? "is a head without logits" : "touches the logits";
    if (o.column < 0 || o.columns < 1 || o.column > b.columns - o.columns) return "reaches outside a buffer";
    if (blocks && o.columns != b.columns) return "takes a part of blocks";
    return {};
  }

  std::string matrices(const kvell_op& op, const kvell_matrix* m, int count, int columns, int rows) const {
    for (int i = 0; i < count; ++i, ++m) {
      if (m->kind < 0 || m->kind > KVELL_F32 || !m->data || reinterpret_cast<uintptr_t>(m->data) % 64)
        return "has a matrix without data";
      if (!is_float(m->kind) && m->group != 32 && m->group != 16) return "has a matrix with odd groups";
      if (m->columns != columns) return "has a matrix of " + std::to_string(m->columns) + " columns for " + std::to_string(columns);
      if (m->rows < 1 || m->first_row < 0 || (rows && m->first_row + int64_t{m->rows} > rows))
        return "has a matrix that writes outside its output";
      if (op.opcode != KVELL_OP_TAKE && (is_float(m->kind) ? op.in0 : op.in1).buffer < 0)
        return "lacks the input that its matrix needs";
    }
    return {};
  }

  std::string multiply(const kvell_op& op) const {
    const bool wide = op.in0.buffer >= 0, packed = op.in1.buffer >= 0;
    if (!wide && !packed) return "has no input";
    std::string fault = wide ? operand(op.in0, true, false) : "";
    if (fault.empty() && packed) fault = operand(op.in1, true, true);
    if (!fault.empty()) return fault;
    if (wide && packed && op.in0.columns != op.in1.columns) return "has inputs of two sizes";
    const kvell_operand& in = wide ? op.in0 : op.in1;
    if (buffer(in).rows != buffer(op.out).rows || (packed && buffer(op.in1).rows != buffer(op.out).rows))
      return "has inputs and outputs of different rows";
    if (op.count < 1) return "has no matrix";
    const auto* matrix = static_cast<const kvell_matrix*>(op.data[0]);
    if (op.opcode == KVELL_OP_HEAD && (op.count != 1 || matrix->first_row || matrix->rows != op.out.columns ||
                                       op.out.columns != buffer(op.out).columns))
      return "has logits that its matrix does not fill";
    return matrices(op, matrix, op.count, in.columns, op.out.columns);
  }

  // Rows and sizes of everything but products and embeddings.
  std::string row_wise(const kvell_op& op) const {
    const bool gathers = op.opcode == KVELL_OP_GATHER, has_out = op.out.buffer >= 0;
    if (has_out && op.out.columns != op.in0.columns) return "changes the number of columns";
    if (op.in1.buffer >= 0 && op.in1.columns != op.in0.columns) return "has inputs of two sizes";
    if (op.in1.buffer >= 0 && buffer(op.in1).rows != buffer(op.in0).rows) return "has inputs of different rows";
    if (has_out && !gathers && buffer(op.out).rows != buffer(op.in0).rows) return "changes rows";
    if (gathers && (buffer(op.in0).rows != KVELL_TOKENS || buffer(op.out).rows != KVELL_WANTED)) return "gathers odd rows";
    if (op.opcode == KVELL_OP_BIAS && op.count != op.in0.columns) return "has a bias of another size";
    return {};
  }

  std::string heads(const kvell_op& op) const {
    const bool per_head = op.opcode == KVELL_OP_NORM || op.opcode == KVELL_OP_ROTATE;
    if (per_head && (op.heads < 1 || op.head_dim < 1 || int64_t{op.heads} * op.head_dim != op.in0.columns))
      return "has heads that don't fill its row";
    if (op.opcode == KVELL_OP_NORM && op.count != op.head_dim) return "has a weight of another size";
    if (op.opcode == KVELL_OP_ROTATE) {
      if (op.index < 0 || op.index >= spec.num_ropes) return "names no rope table";
      if (2 * spec.ropes[op.index].pairs != op.head_dim) return "has a rope table of another size";
      if (buffer(op.in0).rows != KVELL_TOKENS) return "turns rows that have no positions";
    }
    if (op.opcode != KVELL_OP_WRITE && op.opcode != KVELL_OP_ATTEND) return {};
    if (op.index < 0 || op.index >= spec.num_views) return "names no view";
    if (op.stored < KVELL_CACHE_F32 || op.stored > KVELL_CACHE_INT8) return "has an unknown type of cache";
    if (op.stored == KVELL_CACHE_INT8 && !(op.data[2] && op.data[3])) return "lacks the scales of its cache";
    const kvell_view& v = spec.views[op.index];
    const int64_t heads = op.opcode == KVELL_OP_WRITE ? v.num_kv_heads : v.num_heads;
    if (heads * v.head_dim != op.in0.columns) return "has heads that don't fill its row";
    if (buffer(op.in0).rows != KVELL_TOKENS) return "sees rows that have no positions";
    return {};
  }

  std::string op(const kvell_op& op) const {
    if (op.version != KVELL_PROGRAM_VERSION) return "is of version " + std::to_string(op.version);
    const Needs& needs = NEEDS[op.opcode];
    for (int i = 0; i < needs.num_data; ++i)
      if (!op.data[i]) return "lacks its data";
    std::string fault = operand(op.out, needs.out, op.opcode == KVELL_OP_QUANTIZE, op.opcode == KVELL_OP_HEAD);
    if (!fault.empty()) return fault;
    if (op.opcode == KVELL_OP_MATMUL || op.opcode == KVELL_OP_HEAD) return multiply(op);
    if (op.opcode == KVELL_OP_TAKE) {
      if (buffer(op.out).rows != KVELL_TOKENS || op.count != 1) return "takes odd rows";
      return matrices(op, static_cast<const kvell_matrix*>(op.data[0]), 1, op.out.columns, 0);
    }
    fault = operand(op.in0, needs.in0, false);
    if (fault.empty()) fault = operand(op.in1, needs.in1, false);
    if (fault.empty()) fault = row_wise(op);
    return fault.empty() ? heads(op) : fault;
  }

  // Operations of one section are row-wise and over the same rows; a gather begins one.
  std::string section(int64_t i) const {
    const kvell_op &op = spec.ops[i], &before = spec.ops[i - 1];
    if (op.section < before.section) return "is out of order";
    if (op.section != before.section) return {};
    if (!is_row_wise(op.opcode) || !is_row_wise(before.opcode)) return "shares a section but isn't row-wise";
    if (op.opcode == KVELL_OP_GATHER) return "gathers in the middle of a section";
    const kvell_operand& rows = before.out.buffer < 0 ? before.in0 : before.out;
    return buffer(op.in0).rows == buffer(rows).rows ? "" : "shares a section but not its rows";
  }
};

std::string describe(const kvell_program_spec& spec, int64_t i, const std::string& fault) {
  const int32_t opcode = spec.ops[i].opcode;
  const bool known = opcode >= 0 && opcode < KVELL_NUM_OPCODES;
  return "operation " + std::to_string(i) + " (" + (known ? NAMES[opcode] : "unknown") + ") " + fault;
}

}  // namespace

std::string fault_of(const kvell_program_spec& spec) {
  if (spec.version != KVELL_PROGRAM_VERSION || spec.op_bytes != int32_t{sizeof(kvell_op)})
    return "the program is of version " + std::to_string(spec.version) + ", this library runs " +
           std::to_string(KVELL_PROGRAM_VERSION);
  if (spec.num_ops < 1 || spec.max_tokens < 1 || reinterpret_cast<uintptr_t>(spec.arena) % 64)
    return "the program is empty, or its arena is not aligned";
  const Checker checker{spec};
  std::string fault = checker.buffers();
  if (fault.empty()) fault = checker.tables();
  for (int64_t i = 0; fault.empty() && i < spec.num_ops; ++i) {
    const int32_t opcode = spec.ops[i].opcode;
    if (opcode < 0 || opcode >= KVELL_NUM_OPCODES) return describe(spec, i, "has opcode " + std::to_string(opcode));
    std::string its = checker.op(spec.ops[i]);
    if (its.empty() && i > 0) its = checker.section(i);
    if (!its.empty()) fault = describe(spec, i, its);
  }
  return fault;
}

}  // namespace kvell
