// Compares attention and the row ops of two teams, bit for bit, on small cases. Part of the self-test that runs at start.
#include <cstring>
#include <vector>

#include "attention.h"
#include "head.h"
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

// What one row kernel gets, and where its results go: 8 numbers more than it may write.
struct RowCase {
  int64_t n;
  std::vector<float> x, y, weight, out;

  RowCase(int64_t count, float magnitude, Random& random)
      : n(count), x(random_floats(n, random)), y(random_floats(n, random)), weight(random_floats(n, random)),
        out(static_cast<size_t>(n) + 8, -1.0f) {
    for (auto& value : x) value *= magnitude;
  }
};

struct RowCheck {
  Name name;
  void (*run)(const RowKernels& kernels, RowCase& c);
};

template <int32_t STORED>
void run_store(const RowKernels& kernels, RowCase& c) {
  kernels.store(c.x.data(), STORED, c.n, c.out.data(), &c.out[static_cast<size_t>(c.n)]);
}

template <int32_t ACTIVATION>
void run_gate(const RowKernels& kernels, RowCase& c) {
  kernels.gate(c.x.data(), c.y.data(), ACTIVATION, c.n, c.out.data());
}

// Each number in turn is infinite, then no number.
void run_finite(const RowKernels& kernels, RowCase& c) {
  for (size_t i = 0; i < c.x.size(); ++i) {
    const float kept = c.x[i];
    for (float odd : {kept, __builtin_inff(), -__builtin_nanf("")}) {
      c.x[i] = odd;
      c.out[i] = 2 * c.out[i] + static_cast<float>(kernels.finite(c.x.data(), c.n));
    }
    c.x[i] = kept;
  }
}

// The few best of all numbers, which come in two parts.
void run_best(const RowKernels& kernels, RowCase& c) {
  float logits[5] = {};
  int32_t ids[5] = {};
  Best best = {5, 0, logits, ids, false};
  kernels.find_best(c.x.data(), c.n, 100, &best);
  kernels.find_best(c.y.data(), c.n, 0, &best);
  for (int i = 0; i < best.count; ++i) c.out[0] = 2 * c.out[0] + logits[i] + static_cast<float>(ids[i]);
}

void run_sum(const RowKernels& kernels, RowCase& c) {
  c.out[1] = kernels.sum_exponentials(c.x.data(), c.n, c.out.data());
}

constexpr RowCheck ROW_CHECKS[] = {
    {"norm", [](const RowKernels& k, RowCase& c) { k.norm(c.x.data(), c.weight.data(), 1e-5f, c.n, c.out.data()); }},
    {"sum of rows", [](const RowKernels& k, RowCase& c) { k.add(c.x.data(), c.y.data(), c.n, c.out.data()); }},
    {"row times a number", [](const RowKernels& k, RowCase& c) { k.scale(c.x.data(), 0.3f, c.n, c.out.data()); }},
    {"silu gate", run_gate<KVELL_SILU>},
    {"gelu gate", run_gate<KVELL_GELU_TANH>},
    {"rotary embedding",
     [](const RowKernels& k, RowCase& c) {
       k.rotate(c.x.data(), c.y.data(), c.weight.data(), c.n / 2 * 2, c.out.data());
     }},
    {"float32 cache write", run_store<KVELL_CACHE_F32>},
    {"bfloat16 cache write", run_store<KVELL_CACHE_BF16>},
    {"int8 cache write", run_store<KVELL_CACHE_INT8>},
    {"check for finite numbers", run_finite},
    {"best entries", run_best},
    {"sum of exponentials", run_sum},
};

}  // namespace

Name differing_row(const Kernels& reference, const Kernels& kernels, int64_t n, float magnitude, Random& random) {
  for (const RowCheck& check : ROW_CHECKS) {
    RowCase expected(n, magnitude, random), got = expected;
    check.run(*reference.rows, expected);
    check.run(*kernels.rows, got);
    if (std::memcmp(expected.out.data(), got.out.data(), got.out.size() * sizeof(float)) != 0) return check.name;
  }
  return nullptr;
}

Name differing_step(kvell_team* reference, kvell_team* team, Random& random) {
  for (int32_t stored : {KVELL_CACHE_F32, KVELL_CACHE_BF16, KVELL_CACHE_INT8})
    for (int32_t window : {0, 33})
      if (step(reference, stored, window, random) != step(team, stored, window, random)) return "attention";
  for (int32_t activation : {KVELL_SILU, KVELL_GELU_TANH})
    if (rows(reference, activation, random) != rows(team, activation, random)) return "norms and gates of many rows";
  return nullptr;
}

}  // namespace kvell
