// What the machine gives: bytes read from memory and multiply-adds in registers, per second, with N threads.
//
// Usage: ceilings THREADS; prints four numbers, the best of many short runs: GB/s read, then billions of int8
// multiply-adds (maddubs, alone and each with its 16-bit addition) and of float32 ones (fma). Zeros where unknown.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t READ_BYTES = size_t{192} << 20;  // far more than any cache holds
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

double read_gb(int threads) {
  std::vector<uint64_t> memory(READ_BYTES / 8, 1);
  const size_t share = memory.size() / static_cast<size_t>(threads);
  const double seconds = best_seconds(threads, 15, [&](int i) {
    const uint64_t* from = memory.data() + share * static_cast<size_t>(i);
    uint64_t sums[8] = {};
    for (size_t at = 0; at + 8 <= share; at += 8) {
      __builtin_prefetch(from + at + 512);
      for (size_t k = 0; k < 8; ++k) sums[k] += from[at + k];
    }
    for (uint64_t sum : sums) sink = sink + sum;
  });
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

int main(int, char** arguments) {
  const int threads = arguments[1] ? std::atoi(arguments[1]) : 1;
  std::printf("%.2f %.1f %.1f %.1f\n", read_gb(threads), maddubs(threads), maddubs_and_add(threads), fma(threads));
}
