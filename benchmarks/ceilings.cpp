// What the machine gives: bytes read from memory and multiply-adds in registers, per second, with N threads.
//
// Usage: ceilings THREADS [BYTES]; prints five numbers, the best of many short runs: GB/s read from 1 GiB and from BYTES,
// then billions of int8 multiply-adds (maddubs, alone and each with its 16-bit addition) and of float32 ones (fma).
// Zeros where unknown or not asked for.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t READ_BYTES = size_t{1} << 30;  // far more than any cache holds, so that no part of it is read from one
constexpr size_t HUGE_PAGE = size_t{1} << 21;
constexpr int ROUNDS = 200000;

volatile uint64_t sink;

template <typename Work>
double best_seconds(int threads, int runs, Work&& work) {
  double best = 1e9;
  for (int run = 0; run < runs; ++run) {
    const auto start = Clock::now();
    std::vector<std::thread> team;
    for (int i = 1; i < threads; ++i) team.emplace_back([&, i] { work(i); });
    work(0);
    for (auto& thread : team) thread.join();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

double read_gb(int threads, size_t bytes) {
  if (bytes == 0) return 0;
  bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  uint64_t* memory = static_cast<uint64_t*>(std::aligned_alloc(HUGE_PAGE, bytes));
  if (!memory) return 0;
#if defined(__linux__)
  madvise(memory, bytes, MADV_HUGEPAGE);  // a ceiling of the memory, not of the page tables
#endif
  std::fill(memory, memory + bytes / 8, 1);
  const size_t share = bytes / 8 / static_cast<size_t>(threads);
  const int runs = std::max(15, static_cast<int>(READ_BYTES / bytes));
  const double seconds = best_seconds(threads, runs, [&](int i) {
    const uint64_t* from = memory + share * static_cast<size_t>(i);
    uint64_t sums[8] = {};
    for (size_t at = 0; at + 8 <= share; at += 8) {
      __builtin_prefetch(from + at + 512);
      for (size_t k = 0; k < 8; ++k) sums[k] += from[at + k];
    }
    for (uint64_t sum : sums) sink = sink + sum;
  });
  std::free(memory);
  return static_cast<double>(share * 8) * threads / seconds / 1e9;
}

#if defined(__AVX2__)
#define EIGHT(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"
#define MADDUBS(d) "vpmaddubsw %%ymm14,%%ymm15,%%ymm" #d "\n"
#define BOTH(d) "vpmaddubsw %%ymm14,%%ymm15,%%ymm8\nvpaddw %%ymm8,%%ymm" #d ",%%ymm" #d "\n"
#define FMA(d) "vfmadd231ps %%ymm14,%%ymm15,%%ymm" #d "\n"

double rate(int threads, double per_round, void (*round)()) {
  return per_round * ROUNDS * threads / best_seconds(threads, 25, [&](int) { round(); }) / 1e9;
}

double maddubs(int threads) {
  return rate(threads, 8 * 32, [] { for (int i = 0; i < ROUNDS; ++i) asm volatile(EIGHT(MADDUBS)::: REGISTERS); });
}
double maddubs_and_add(int threads) {
  return rate(threads, 8 * 32, [] { for (int i = 0; i < ROUNDS; ++i) asm volatile(EIGHT(BOTH)::: REGISTERS); });
}
double fma(int threads) {
  return rate(threads, 8 * 8, [] { for (int i = 0; i < ROUNDS; ++i) asm volatile(EIGHT(FMA)::: REGISTERS); });
}
#else
double maddubs(int) { return 0; }
double maddubs_and_add(int) { return 0; }
double fma(int) { return 0; }
#endif

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const size_t bytes = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
  std::printf("%.2f %.2f ", read_gb(threads, READ_BYTES), read_gb(threads, bytes));
  std::printf("%.1f %.1f %.1f\n", maddubs(threads), maddubs_and_add(threads), fma(threads));
}
