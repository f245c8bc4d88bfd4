// Compares the kernels of an instruction set with plain C, bit for bit, on small matrices of every kind. Runs at start.
#include "selftest.h"

#include <vector>

#include "head.h"
#include "kvell.h"
#include "layout.h"

namespace kvell {
namespace {

template <typename Number>
bool same(const std::vector<Number>& a, const std::vector<Number>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(Number)) == 0;
}

// Which of several things that are no number comes out of a sum is the compiler's choice; that none is there isn't.
bool same_or_both_nan(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (to_bits(a[i]) != to_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i])) return false;
  return true;
}

struct Filled {
  kvell_matrix m;
  std::vector<uint8_t> data;

  // A matrix of random values, packed by `team`.
  Filled(kvell_team* team, const Case& c, Random& random) : m{}, data() {
    const bool grouped = !is_float(c.kind);
    m = {c.rows, c.columns, c.kind, grouped ? c.group : 0, grouped ? c.scale_bytes : 0, c.offset, 8, 0, nullptr};
    data.resize(static_cast<size_t>(kvell_matrix_bytes(&m)) + 64);
    m.data = data.data() + (64 - reinterpret_cast<uintptr_t>(data.data()) % 64) % 64;
    const auto size = static_cast<size_t>(c.rows) * static_cast<size_t>(c.columns);
    if (is_float(c.kind)) {
      std::vector<uint8_t> values(size * 4);
      for (size_t i = 0; i < size; ++i) {
        const float value = random.value();
        const uint32_t bits = to_bits(value);
        const auto half = c.kind == KVELL_BF16 ? static_cast<uint16_t>(bits >> 16) : to_half(value);
        if (c.kind == KVELL_F32) std::memcpy(&values[4 * i], &value, 4);
        if (c.kind != KVELL_F32) std::memcpy(&values[2 * i], &half, 2);
      }
      kvell_pack_values(team, &m, 0, c.rows, values.data());
      return;
    }
    constexpr unsigned RANGE[] = {16, 32, 64, 256};
    std::vector<uint8_t> codes(size);
    for (auto& code : codes) code = static_cast<uint8_t>(random.next() % RANGE[c.kind]);
    std::vector<float> scales(size), offsets(size);  // more than enough
    for (auto& scale : scales) scale = from_half(to_half(random.value()));
    for (auto& offset : offsets) offset = from_half(to_half(random.value()));
    kvell_pack_codes(team, &m, 0, c.rows, codes.data(), scales.data(), offsets.data());
  }
};

constexpr Name PRODUCTS[] = {"product of 4-bit codes", "product of 5-bit codes", "product of 6-bit codes",
                             "product of 8-bit codes", "product of bfloat16",    "product of float16",
                             "product of float32"};

void make_odd(std::vector<float>& x, Random& random) {
  constexpr uint32_t ODD[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x80000000u, 0x00000001u, 0x807fffffu, 0x7f7fffffu};
  for (auto& value : x)
    if (random.next() % 16 == 0) value = from_bits(ODD[random.next() % 7]);
}

}  // namespace

Name differing_product(kvell_team* reference, kvell_team* team, const Case& c, Random& random) {
  const Filled filled(reference, c, random);
  const auto depth = static_cast<size_t>(num_blocks(c.columns)), tokens = static_cast<size_t>(c.tokens);
  std::vector<float> x(tokens * static_cast<size_t>(c.columns));
  for (auto& value : x) value = random.value() * c.magnitude;
  if (c.odd) make_odd(x, random);
  std::vector<kvell_block> blocks[2];
  std::vector<float> out[2];
  for (int i = 0; i < 2; ++i) {
    kvell_team* const now = i ? team : reference;
    blocks[i].resize(tokens * depth);
    out[i].assign(tokens * static_cast<size_t>(c.rows), -1.0f);
    kvell_quantize(now, x.data(), c.columns, c.tokens, c.columns, blocks[i].data());
    kvell_matmul(now, &filled.m, 1, c.tokens, blocks[0].data(), x.data(), c.columns, out[i].data(), c.rows);
  }
  if (!same(blocks[0], blocks[1])) return "quantising";
  return (c.odd ? same_or_both_nan(out[0], out[1]) : same(out[0], out[1])) ? nullptr : PRODUCTS[c.kind];
}

namespace {

// Everything that a head says of some rows, each with another wish.
std::vector<uint8_t> scored(kvell_team* team, const kvell_matrix& m, const std::vector<kvell_block>& blocks,
                            const std::vector<float>& x, int rows) {
  std::vector<kvell_wish> wishes;
  for (int row = 0; row < rows; ++row) wishes.push_back({row % 2 ? row % 7 : 1, row % 3 != 1, row % 4 == 2});
  const auto n = static_cast<size_t>(rows), vocabulary = static_cast<size_t>(m.rows);
  constexpr size_t MOST = 7;
  std::vector<float> logits(n * vocabulary), best(n * MOST);
  std::vector<int32_t> counts(n), ids(n * MOST);
  std::vector<double> log_sums(n);
  kvell_head call = {&m, blocks.data(), x.data(), m.columns, rows, wishes.data(), logits.data(), MOST,
                     counts.data(), ids.data(), best.data(), log_sums.data(), nullptr};
  std::vector<uint8_t> scratch(static_cast<size_t>(kvell_head_scratch_bytes(team, &call)) + 64, 0x7f);
  call.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  kvell_head_rows(team, &call);
  // of what is no number, no bit counts but that it is none
  for (auto& sum : log_sums) sum = sum == sum ? sum : 0.125;
  for (auto& logit : logits) logit = logit == logit ? logit : 0.125f;
  std::vector<uint8_t> all;
  const auto add = [&](const void* from, size_t bytes) {
    all.insert(all.end(), static_cast<const uint8_t*>(from), static_cast<const uint8_t*>(from) + bytes);
  };
  add(logits.data(), logits.size() * sizeof(float));
  add(best.data(), best.size() * sizeof(float));
  add(ids.data(), ids.size() * sizeof(int32_t));
  add(counts.data(), counts.size() * sizeof(int32_t));
  add(log_sums.data(), log_sums.size() * sizeof(double));
  return all;
}

}  // namespace

Name differing_head(kvell_team* reference, kvell_team* team, const Case& c, Random& random) {
  const Filled filled(reference, c, random);
  const auto depth = static_cast<size_t>(num_blocks(c.columns)), rows = static_cast<size_t>(c.tokens);
  std::vector<float> x(rows * static_cast<size_t>(c.columns));
  for (auto& value : x) value = random.value() * c.magnitude;
  std::vector<kvell_block> blocks(rows * depth);
  kvell_quantize(reference, x.data(), c.columns, c.tokens, c.columns, blocks.data());
  const bool good = scored(reference, filled.m, blocks, x, c.tokens) == scored(team, filled.m, blocks, x, c.tokens);
  return good ? nullptr : "head";
}

Name differing_product_of_any(kvell_team* reference, kvell_team* team, const Case& base, Random& random) {
  for (int kind = KVELL_U4; kind <= KVELL_F32; ++kind)
    for (int group = 32; group >= 16; group -= 16)
      for (int scale_bytes = 2; scale_bytes <= 4; scale_bytes += 2)
        for (int offset = KVELL_NO_OFFSET; offset <= KVELL_IMPLIED; ++offset) {
          Case c = base;
          c.kind = kind;
          c.group = group;
          c.scale_bytes = scale_bytes;
          c.offset = offset;
          if (is_float(kind) && (group == 16 || scale_bytes == 4 || offset != KVELL_NO_OFFSET)) continue;
          if (Name name = differing_product(reference, team, c, random)) return name;
        }
  return nullptr;
}

}  // namespace kvell

const char* kvell_selftest(kvell_team* team) {
  using namespace kvell;
  kvell_team* const plain = kvell_team_create(1, KVELL_PLAIN);
  Random random;
  Name name = nullptr;
  for (int tokens : {1, 3, 6})
    if (!name) name = differing_product_of_any(plain, team, Case{21, 72, tokens, 1.0f}, random);
  if (!name) name = differing_row(kernels_of(plain), kernels_of(team), 107, 1.0f, random);
  if (!name) name = differing_head(plain, team, Case{1037, 40, 5, 1.0f}, random);
  if (!name) name = differing_step(plain, team, random);
  kvell_team_destroy(plain);
  return name ? name : "";
}
