// Compares attention and the row ops of two teams, bit for bit, on small cases. Part of the self-test that runs at start.
#include <cstring>
#include <vector>

#include "attention.h"
#include "ops.h"
#include "selftest.h"

namespace kvell {
namespace {

constexpr int HEADS = 6, KV_HEADS = 2, HEAD_DIM = 20, BLOCK_SIZE = 5, NUM_BLOCKS = 80;
constexpr int QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
constexpr int64_t SLOTS = int64_t{NUM_BLOCKS} * BLOCK_SIZE;

// A prompt that needs tiles of many rows, and one token after a context that has several ranges.
const kvell_chunk CHUNKS[] = {{0, 40, 30, 0}, {30, 300, 1, 14}};
constexpr int64_t TOKENS = 31;

std::vector<float> random_floats(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (auto& value : values) value = random.value();
  return values;
}

// The bytes that a step's rotary embedding, cache writes and attention leave.
std::vector<uint8_t> step(kvell_team* team, int32_t stored, int32_t window, Random random) {
  const auto size = static_cast<size_t>(SLOTS * KV_HEADS * HEAD_DIM * 4);
  std::vector<uint8_t> keys(size), values(size);
  std::vector<float> scales[2] = {random_floats(SLOTS * KV_HEADS, random), random_floats(SLOTS * KV_HEADS, random)};
  std::vector<float> qkv = random_floats(SLOTS * QKV, random), norm = random_floats(HEAD_DIM, random);
  const std::vector<float> turn = random_floats(SLOTS * HEAD_DIM / 2, random);
  std::vector<int64_t> slots(static_cast<size_t>(SLOTS));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
  const kvell_rotary rotary = {qkv.data(), norm.data(), norm.data(), turn.data(), turn.data(), nullptr, slots.data(),
                               keys.data(), values.data(), scales[0].data(), scales[1].data(), SLOTS, QKV, HEADS,
                               KV_HEADS, HEAD_DIM, stored, 1e-5f};
  kvell_rotate_and_store(team, &rotary);

  std::vector<int32_t> tables(NUM_BLOCKS);
  for (int i = 0; i < NUM_BLOCKS; ++i) tables[static_cast<size_t>(i)] = (i * 7 + 3) % NUM_BLOCKS;
  std::vector<kvell_attention_item> items(256);
  kvell_attention_plan plan;
  const int32_t threads = kvell_team_threads(team);
  kvell_plan_attention(CHUNKS, 2, HEADS, KV_HEADS, window, threads, items.data(), 256, &plan);
  std::vector<int32_t> counters(static_cast<size_t>(plan.num_groups * KV_HEADS + 1));
  const auto partials = static_cast<size_t>(plan.partial_rows * KV_HEADS * kvell_attention_row_floats(HEAD_DIM));
  const auto scratch = static_cast<size_t>(threads * kvell_attention_scratch_floats(HEADS, KV_HEADS, HEAD_DIM));
  std::vector<float> memory(partials + scratch + 64), out(TOKENS * HEADS * HEAD_DIM);
  const kvell_attention call = {qkv.data(), out.data(), QKV, HEADS * HEAD_DIM, keys.data(), values.data(),
                                scales[0].data(), scales[1].data(), stored, BLOCK_SIZE, HEADS, KV_HEADS, HEAD_DIM,
                                window, 0.25f, static_cast<int32_t>(plan.num_items), CHUNKS, tables.data(),
                                items.data(), counters.data(), memory.data(), memory.data() + partials};
  kvell_attend(team, &call);

  std::vector<uint8_t> result = keys;
  result.insert(result.end(), values.begin(), values.end());
  const auto* bytes = reinterpret_cast<const uint8_t*>(out.data());
  result.insert(result.end(), bytes, bytes + out.size() * sizeof(float));
  return result;
}

// The floats and blocks that norms and gates leave of rows that don't come out even.
std::vector<uint8_t> rows(kvell_team* team, int32_t activation, Random random) {
  constexpr int64_t rows = 5, columns = 107;
  std::vector<float> x = random_floats(rows * columns, random), out(2 * rows * columns);
  const std::vector<float> y = random_floats(2 * rows * columns, random), weight = random_floats(columns, random);
  std::vector<kvell_block> blocks(2 * rows * 4);
  const kvell_norm norm = {x.data(), y.data(), weight.data(), weight.data(), out.data(), blocks.data(),
                           rows, columns, columns, columns, columns, 1e-5f};
  kvell_normalize(team, &norm);
  const kvell_gate gate = {y.data(), out.data() + rows * columns, blocks.data() + rows * 4, rows, 2 * columns, columns,
                           columns, activation};
  kvell_activate(team, &gate);
  std::vector<uint8_t> result(out.size() * sizeof(float) + blocks.size() * sizeof(kvell_block));
  std::memcpy(result.data(), out.data(), out.size() * sizeof(float));
  std::memcpy(result.data() + out.size() * sizeof(float), blocks.data(), blocks.size() * sizeof(kvell_block));
  return result;
}

}  // namespace

bool rows_agree(kvell_team* reference, kvell_team* team, Random& random) {
  for (int32_t stored : {KVELL_CACHE_F32, KVELL_CACHE_BF16, KVELL_CACHE_INT8})
    for (int32_t window : {0, 33})
      if (step(reference, stored, window, random) != step(team, stored, window, random)) return false;
  for (int32_t activation : {KVELL_SILU, KVELL_GELU_TANH})
    if (rows(reference, activation, random) != rows(team, activation, random)) return false;
  return true;
}

}  // namespace kvell
