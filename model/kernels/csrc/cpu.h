// What differs between processors, apart from the kernels themselves.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace kvell {

// Tells the processor that this is a waiting loop.
static inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

// Asks for the cache line of `address` before it is needed. Any address will do.
static inline void prefetch(const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address);
#else
  (void)address;
#endif
}

// The same for a line that is going to be written.
inline void prefetch_to_write(void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address, 1);
#else
  (void)address;
#endif
}

}  // namespace kvell
