// A program for the sanitizers (make test-native): every kernel against plain C on many shapes, packing at exact memory
// ends, and the thread team under jobs that come as fast as they can. Prints what failed; exit status 0 means nothing did.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gguf_blocks.h"
#include "layout.h"
#include "selftest.h"
#include "threads.h"

using namespace kvell;

namespace {

int failures = 0;

void expect(bool good, const char* what, int a = 0, int b = 0, int c = 0) {
  if (good) return;
  ++failures;
  std::printf("FAILED: %s (%d, %d, %d)\n", what, a, b, c);
}

void expect_none(Name differing, int isa, int a = 0, int b = 0) {
  if (differing) std::printf("%s: ", differing);
  expect(!differing, "kernels differ", isa, a, b);
}

void every_kernel(int isa, int threads) {
  kvell_team *plain = kvell_team_create(1, KVELL_PLAIN), *team = kvell_team_create(threads, isa);
  Random random;
  const auto products = [&](const Case& c) {
    expect_none(differing_product_of_any(plain, team, c, random), isa, c.rows, c.columns);
  };
  const int shapes[][2] = {{1, 1}, {8, 32}, {23, 97}, {17, 800}};
  for (const auto& shape : shapes)
    for (int tokens : {1, 3, 6, 18}) products({shape[0], shape[1], tokens, 1.0f});
  for (float magnitude : {1e30f, 1e-35f}) products({9, 33, 2, magnitude});
  products({20, 64, 140, 1.0f});  // several tiles of tokens
  products({25, 150, 7, 1.0f, true});
  for (int i = 0; i < 12; ++i) {
    const auto up_to = [&](uint64_t most) { return static_cast<int>(random.next() % most) + 1; };
    products({up_to(40), up_to(200), up_to(20), 1.0f});
  }
  for (float magnitude : {1.0f, 1e30f, 1e-35f})
    for (int64_t n : {1, 2, 7, 8, 9, 31, 32, 33, 64, 107})
      expect_none(differing_row(kernels_of(plain), kernels_of(team), n, magnitude, random), isa, static_cast<int>(n));
  for (int vocabulary : {1, 9, 511, 512, 513, 2000})
    for (int rows : {1, 5, 70})
      for (float magnitude : {1.0f, 1e-35f, 1e30f, 3e38f})  // with the last of them logits become infinite, or no numbers
        for (int kind : {int{KVELL_U4}, int{KVELL_F32}}) {
          Case c{vocabulary, 33, rows, magnitude};
          c.kind = kind;
          expect_none(differing_head(plain, team, c, random), isa, vocabulary, rows);
        }
  kvell_team_destroy(team);
  kvell_team_destroy(plain);
}

// Blocks of any bits, in memory that ends where they end.
void gguf_types() {
  kvell_team* team = kvell_team_create(2, KVELL_PLAIN);
  Random random;
  for (int id = 0; id < 40; ++id) {
    kvell_matrix m{11, 512, 0, 0, 0, 0, 0, 0, nullptr};
    const GgufType* type = gguf_type(id);
    expect((kvell_gguf_format(id, &m) == 1) == (type != nullptr), "format of type", id);
    if (!type) continue;
    const auto size = static_cast<size_t>(m.rows * m.columns / type->values * type->bytes);
    const auto data = std::make_unique<uint8_t[]>(size), packed = std::make_unique<uint8_t[]>(
                                                             static_cast<size_t>(kvell_matrix_bytes(&m)));
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(random.next());
    m.data = packed.get();
    kvell_pack_gguf(team, &m, 0, m.rows, id, data.get());
    const int64_t ids[] = {10, 0, 7, 8};
    std::vector<float> out(4 * 512);
    kvell_take(team, &m, ids, 4, out.data(), 512);
    constexpr int TOP[] = {15, 31, 63, 127};
    for (int row = 0; row < m.rows; ++row)
      for (int column = 0; column < m.columns; ++column) {
        const int code = code_at(block_at(m, row / 8, column / 32), m.kind, row % 8, column % 32);
        expect(code <= TOP[m.kind], "code in the range of its kind", id, row, column);
      }
  }
  kvell_team_destroy(team);
}

// Every tile exactly once, whatever the number of tiles, with jobs that follow one another at once and after a pause
// that lets the workers fall asleep.
void thread_team(int threads) {
  kvell_team* team = kvell_team_create(threads, KVELL_PLAIN);
  std::vector<std::atomic<int>> runs(200);
  for (int job = 0; job < 1200; ++job) {
    const int tiles = job % 200;
    for (auto& count : runs) count.store(0, std::memory_order_relaxed);
    std::atomic<int> strangers{0};
    parallel(team, tiles, [&](int64_t tile, int worker) {
      runs[static_cast<size_t>(tile)].fetch_add(1, std::memory_order_relaxed);
      if (worker < 0 || worker >= threads) strangers.fetch_add(1);
    });
    expect(strangers.load() == 0, "worker numbers", threads, job);
    for (int tile = 0; tile < 200; ++tile)
      expect(runs[static_cast<size_t>(tile)].load() == (tile < tiles), "each tile once", threads, job, tile);
    volatile int idle = job % 500 == 0 ? 3000000 : 0;
    while (idle > 0) idle = idle - 1;
  }
  kvell_team_destroy(team);
}

}  // namespace

// With the number of an instruction set: only that one, on one thread.
int main(int argc, char** argv) {
  if (argc > 1) {
    const int isa = std::atoi(argv[1]);
    expect(kvell_has_isa(isa), "an instruction set that is here", isa);
    if (failures == 0) every_kernel(isa, 1);
    std::printf(failures ? "%d failures\n" : "all good\n", failures);
    return failures != 0;
  }
  for (int threads : {1, 2, 5}) thread_team(threads);
  gguf_types();
  for (int isa = KVELL_PLAIN; isa <= KVELL_NEON; ++isa) {
    if (!kvell_has_isa(isa)) continue;
    every_kernel(isa, 1);
    every_kernel(isa, 2);
    kvell_team* team = kvell_team_create(2, isa);
    expect(*kvell_selftest(team) == 0, "self-test at start", isa);
    kvell_team_destroy(team);
    failures += unnamed_faults(isa);
    std::printf("instruction set %d compared with plain C\n", isa);
  }
  expect(kvell_team_create(0, KVELL_PLAIN) == nullptr, "a team of nobody");
  expect(kvell_team_create(1, 99) == nullptr, "an unknown instruction set");
  std::printf(failures ? "%d failures\n" : "all good\n", failures);
  return failures != 0;
}
