// One step unpacked: from chunks and block tables to positions, slots, wanted rows and plans of attention.
//
// Everything that a step could get wrong is looked at here, before anything is computed.
#include <cstdio>

#include "program_parts.h"

namespace kvell {
namespace {

constexpr int64_t CHUNK = 6;  // numbers that describe one in kvell_step

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string unpack_rows(kvell_program& program, const kvell_step& step) {
  StepState& state = program.state;
  state.positions.clear();
  state.wanted.clear();
  state.wishes.clear();
  for (int64_t b = 0; b < step.num_chunks; ++b) {
    const int64_t* chunk = step.chunks + CHUNK * b;
    const int64_t start = chunk[0], length = chunk[1], wanted = chunk[2];
    if (length < 1 || start < 0 || wanted < 0 || wanted > length)
      return text("chunk %ld: start %ld, %ld tokens, %ld wanted", long(b), long(start), long(length), long(wanted));
    if (wanted && (chunk[4] < 0 || chunk[4] > step.most_best || step.most_best > KVELL_MOST_BEST))
      return text("chunk %ld: %ld best of %ld", long(b), long(chunk[4]), long(step.most_best));
    const kvell_wish wish = {static_cast<int32_t>(chunk[4]), chunk[5] != 0, chunk[3] != 0};
    const auto row = static_cast<int64_t>(state.positions.size());
    if (row + length > program.max_tokens)
      return text("more than %ld tokens in a step", long(program.max_tokens));
    for (const kvell_rope& rope : program.ropes)
      if (start + length > rope.rows) return text("position %ld is past the rope table", long(start + length - 1));
    for (int64_t i = 0; i < length; ++i) state.positions.push_back(start + i);
    for (int64_t i = length - wanted; i < length; ++i) state.wanted.push_back(row + i);
    state.wishes.insert(state.wishes.end(), static_cast<size_t>(wanted), wish);
  }
  state.num_tokens = static_cast<int64_t>(state.positions.size());
  state.num_rows = static_cast<int64_t>(state.wanted.size());
  if (state.num_tokens != step.num_tokens)
    return text("%ld tokens for chunks of %ld", long(step.num_tokens), long(state.num_tokens));
  for (int64_t t = 0; t < step.num_tokens; ++t)
    if (step.tokens[t] < 0 || step.tokens[t] >= program.vocabulary)
      return text("token %ld is not in the vocabulary of %ld", long(step.tokens[t]), long(program.vocabulary));
  return {};
}

// The chunk's part of a view's table, if it is all there.
std::string check_table(const kvell_view& view, const kvell_step& step, int64_t table, int64_t start, int64_t end) {
  const int64_t seen = view.window && start >= view.window ? start - view.window + 1 : 0;
  const int64_t low = table + seen / view.block_size, high = table + (end - 1) / view.block_size;
  if (low < 0 || high >= step.num_tables)
    return text("blocks %ld to %ld of a table of %ld", long(low), long(high), long(step.num_tables));
  for (int64_t i = low; i <= high; ++i)
    if (step.tables[i] < 0 || step.tables[i] >= view.num_blocks)
      return text("block %d of a cache of %ld", step.tables[i], long(view.num_blocks));
  return {};
}

std::string unpack_view(const kvell_view& view, const kvell_step& step, const int64_t* first_blocks, ViewStep& out) {
  out.chunks.clear();
  out.slots.clear();
  int64_t row = 0;
  for (int64_t b = 0; b < step.num_chunks; ++b) {
    const int64_t start = step.chunks[CHUNK * b], length = step.chunks[CHUNK * b + 1], table = first_blocks[b];
    const std::string fault = check_table(view, step, table, start, start + length);
    if (!fault.empty()) return fault;
    out.chunks.push_back({row, start, length, table});
    for (int64_t p = start; p < start + length; ++p) {
      const int64_t block = step.tables[table + p / view.block_size];
      if (block == 0) return text("position %ld of chunk %ld has the null block", long(p), long(b));
      out.slots.push_back(block * view.block_size + p % view.block_size);
    }
    row += length;
  }
  return {};
}

void plan(const kvell_view& view, int32_t threads, ViewStep& out) {
  const auto make = [&] {
    kvell_plan_attention(out.chunks.data(), static_cast<int64_t>(out.chunks.size()), view.num_heads, view.num_kv_heads,
                         view.window, threads, out.items.data(), static_cast<int64_t>(out.items.size()), &out.plan);
  };
  make();
  if (out.plan.num_items > static_cast<int64_t>(out.items.size())) {
    out.items.resize(static_cast<size_t>(2 * out.plan.num_items));
    make();
  }
  // Counters are zero before and after every call, so only new ones need to be made so.
  const auto counters = static_cast<size_t>(out.plan.num_groups * view.num_kv_heads);
  if (counters > out.counters.size()) out.counters.resize(2 * counters);
  const auto partials = static_cast<size_t>(out.plan.partial_rows * view.num_kv_heads * kvell_attention_row_floats(view.head_dim));
  if (partials > out.partials.size()) out.partials.resize(partials);
}

}  // namespace

std::string unpack(kvell_program& program, const kvell_step& step) {
  std::string fault = unpack_rows(program, step);
  program.state.step = &step;
  for (size_t v = 0; fault.empty() && v < program.views.size(); ++v) {
    ViewStep& view = program.state.views[v];
    fault = unpack_view(program.views[v], step, step.first_blocks + static_cast<int64_t>(v) * step.num_chunks, view);
    if (fault.empty()) plan(program.views[v], kvell_team_threads(program.team), view);
  }
  return fault;
}

}  // namespace kvell
