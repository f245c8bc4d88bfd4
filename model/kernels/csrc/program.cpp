// Making and replaying a program. See program.h.
#include "program.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>

#include "program_parts.h"
#include "threads.h"

using namespace kvell;

namespace {

constexpr int64_t TILE_FLOATS = 6144;  // that a tile of a row-wise section writes: a few microseconds

std::vector<Section> sections_of(const kvell_program& program) {
  std::vector<Section> sections;
  const auto num_ops = static_cast<int>(program.ops.size());
  for (int i = 0; i < num_ops; ++i) {
    const kvell_op& op = program.ops[static_cast<size_t>(i)];
    const kvell_operand& shape = op.out.buffer < 0 ? op.in0 : op.out;
    const bool first = i == 0 || op.section != program.ops[static_cast<size_t>(i) - 1].section;
    if (first) sections.push_back({i, i, is_row_wise(op.opcode), program.buffer(shape).rows, 0});
    sections.back().last = i + 1;
    sections.back().row_floats += shape.columns;
  }
  return sections;
}

void run_by_rows(kvell_program& program, const Section& section) {
  const int64_t num_rows = section.rows == KVELL_TOKENS ? program.state.num_tokens : program.state.num_rows;
  const int64_t per_tile = std::max<int64_t>(1, TILE_FLOATS / section.row_floats);
  parallel(program.team, (num_rows + per_tile - 1) / per_tile, [&](int64_t tile, int) {
    const int64_t first = tile * per_tile, last = std::min(first + per_tile, num_rows);
    for (int i = section.first; i < section.last; ++i)
      fetch_rows(program, program.ops[static_cast<size_t>(i)], first, last);
    for (int i = section.first; i < section.last; ++i)
      run_rows(program, program.ops[static_cast<size_t>(i)], first, last);
  });
}

void take(kvell_program& program, const kvell_op& op) {
  kvell_take(program.team, static_cast<const kvell_matrix*>(op.data[0]), program.state.step->tokens,
             program.state.num_tokens, program.floats(op.out), program.stride(op.out));
}

void multiply(kvell_program& program, const kvell_op& op) {
  const bool wide = op.in0.buffer >= 0;
  kvell_matmul(program.team, static_cast<const kvell_matrix*>(op.data[0]), op.count, program.num_rows(op.out),
               op.in1.buffer < 0 ? nullptr : program.blocks(op.in1), wide ? program.floats(op.in0) : nullptr,
               wide ? program.stride(op.in0) : 0, program.floats(op.out), program.stride(op.out));
}

// The address rounded up to a whole cache line.
template <typename T>
T* aligned(std::vector<T>& memory) {
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
}

kvell_head head_of(const kvell_program& program, const kvell_op& op) {
  const kvell_step& step = *program.state.step;
  const bool wide = op.in0.buffer >= 0;
  kvell_head call{};
  call.matrix = static_cast<const kvell_matrix*>(op.data[0]);
  call.blocks = op.in1.buffer < 0 ? nullptr : program.blocks(op.in1);
  call.x = wide ? program.floats(op.in0) : nullptr;
  call.x_stride = wide ? program.stride(op.in0) : 0;
  call.num_rows = program.state.num_rows;
  call.wishes = program.state.wishes.data();
  call.logits = step.logits;
  call.most_best = static_cast<int32_t>(step.most_best);
  call.counts = step.counts;
  call.ids = step.ids;
  call.best = step.best;
  call.log_sums = step.log_sums;
  return call;
}

void score(kvell_program& program, const kvell_op& op) {
  kvell_head call = head_of(program, op);
  const auto bytes = static_cast<size_t>(kvell_head_scratch_bytes(program.team, &call)) + 64;
  if (bytes > program.head_scratch.size()) program.head_scratch.resize(bytes);
  call.scratch = aligned(program.head_scratch);
  kvell_head_rows(program.team, &call);
}

void attend(kvell_program& program, const kvell_op& op) {
  const kvell_view& view = program.views[static_cast<size_t>(op.index)];
  ViewStep& step = program.state.views[static_cast<size_t>(op.index)];
  kvell_attention call{};
  call.queries = program.floats(op.in0);
  call.out = program.floats(op.out);
  call.query_stride = program.stride(op.in0);
  call.out_stride = program.stride(op.out);
  call.keys = op.data[0];
  call.values = op.data[1];
  call.key_scales = static_cast<const float*>(op.data[2]);
  call.value_scales = static_cast<const float*>(op.data[3]);
  call.stored = op.stored;
  call.block_size = view.block_size;
  call.num_heads = view.num_heads;
  call.num_kv_heads = view.num_kv_heads;
  call.head_dim = view.head_dim;
  call.window = view.window;
  call.scale = op.number;
  call.num_items = static_cast<int32_t>(step.plan.num_items);
  call.chunks = step.chunks.data();
  call.tables = program.state.step->tables;
  call.items = step.items.data();
  call.counters = step.counters.data();
  call.partials = step.partials.data();
  call.scratch = aligned(program.scratch);
  kvell_attend(program.team, &call);
}

void run_section(kvell_program& program, const Section& section) {
  if (section.by_rows) return run_by_rows(program, section);
  const kvell_op& op = program.ops[static_cast<size_t>(section.first)];
  switch (op.opcode) {
    case KVELL_OP_TAKE: return take(program, op);
    case KVELL_OP_MATMUL: return multiply(program, op);
    case KVELL_OP_HEAD: return score(program, op);
    default: return attend(program, op);
  }
}

int32_t replay(kvell_program& program, double* seconds) {
  using Clock = std::chrono::steady_clock;
  auto began = Clock::now();
  program.not_finite.store(false, std::memory_order_relaxed);
  for (size_t i = 0; i < program.sections.size(); ++i) {
    run_section(program, program.sections[i]);
    if (program.not_finite.load(std::memory_order_relaxed)) return KVELL_NOT_FINITE;
    if (seconds) {
      const auto now = Clock::now();
      seconds[i] += std::chrono::duration<double>(now - began).count();
      began = now;
    }
  }
  return KVELL_DONE;
}

size_t scratch_floats(const kvell_program& program) {
  int64_t most = 0;
  for (const kvell_view& view : program.views) {
    const int64_t each = kvell_attention_scratch_floats(view.num_heads, view.num_kv_heads, view.head_dim);
    most = std::max(most, round_up(each, 16));
  }
  return static_cast<size_t>(most * kvell_team_threads(program.team) + 16);
}

int64_t vocabulary_of(const kvell_program& program) {
  int64_t rows = INT64_MAX;
  for (const kvell_op& op : program.ops)
    if (op.opcode == KVELL_OP_TAKE) rows = std::min<int64_t>(rows, static_cast<const kvell_matrix*>(op.data[0])->rows);
  return rows;
}

}  // namespace

kvell_program* kvell_program_create(kvell_team* team, const kvell_program_spec* spec, char* error,
                                    int64_t error_bytes) try {
  const std::string fault = fault_of(*spec);
  if (!fault.empty()) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", fault.c_str());
    return nullptr;
  }
  auto* program = new kvell_program{};
  program->team = team;
  program->ops.assign(spec->ops, spec->ops + spec->num_ops);
  program->buffers.assign(spec->buffers, spec->buffers + spec->num_buffers);
  program->views.assign(spec->views, spec->views + spec->num_views);
  program->ropes.assign(spec->ropes, spec->ropes + spec->num_ropes);
  program->arena = spec->arena;
  program->max_tokens = spec->max_tokens;
  program->sections = sections_of(*program);
  program->vocabulary = vocabulary_of(*program);
  program->scratch.resize(scratch_floats(*program));
  program->state.views.resize(program->views.size());
  return program;
} catch (const std::bad_alloc&) {
  std::snprintf(error, static_cast<size_t>(error_bytes), "no memory for the program");
  return nullptr;
}

void kvell_program_destroy(kvell_program* program) { delete program; }

int32_t kvell_program_run(kvell_program* program, const kvell_step* step) try {
  program->error = unpack(*program, *step);
  return program->error.empty() ? replay(*program, step->seconds) : KVELL_BAD_STEP;
} catch (const std::bad_alloc&) {
  return KVELL_NO_MEMORY;
}

const char* kvell_program_error(const kvell_program* program) { return program->error.c_str(); }
