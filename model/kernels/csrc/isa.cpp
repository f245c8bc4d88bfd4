// Which instruction sets this library was built with and this processor has.
#include "kernels.h"

namespace kvell {

namespace {

bool processor_has(int isa) {
  switch (isa) {
    case KVELL_PLAIN: return true;
#if defined(KVELL_BUILD_AVX2)
    case KVELL_AVX2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#endif
#if defined(KVELL_BUILD_AVX512)
    case KVELL_AVX512:
      return processor_has(KVELL_AVX2) && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni");
#endif
    default: return false;
  }
}

}  // namespace

const Kernels* kernels_of(int isa) {
  if (!processor_has(isa)) return nullptr;
  switch (isa) {
#if defined(KVELL_BUILD_AVX2)
    case KVELL_AVX2: return &AVX2_KERNELS;
#endif
#if defined(KVELL_BUILD_AVX512)
    case KVELL_AVX512: return &AVX512_KERNELS;
#endif
#if defined(KVELL_BUILD_NEON)
    case KVELL_NEON: return &NEON_KERNELS;
#endif
    default: return &PLAIN_KERNELS;
  }
}

}  // namespace kvell

int32_t kvell_abi() { return KVELL_ABI; }
int32_t kvell_has_isa(int32_t isa) { return kvell::kernels_of(isa) != nullptr; }
