// Which instruction sets this library was built with and this processor has, and the kernels of each.
#include "kernels.h"

#if defined(KVELL_BUILD_NEON) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(KVELL_BUILD_NEON) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace kvell {

namespace {

constexpr Kernels PLAIN = {plain::quantize_row, plain::matmul_codes, plain::matmul_values, &plain::ROWS,
                           plain::attention_item};

#if defined(KVELL_BUILD_AVX2)
constexpr Kernels AVX2 = {avx2::quantize_row, avx2::matmul_codes, avx2::matmul_values, &avx2::ROWS,
                          avx2::attention_item};

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif

#if defined(KVELL_BUILD_AVX512)
// Only the products are its own.
constexpr Kernels AVX512 = {avx2::quantize_row, avx512::matmul_codes, avx512::matmul_values, &avx2::ROWS,
                            avx2::attention_item};

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(KVELL_BUILD_NEON)
constexpr Kernels NEON = {neon::quantize_row, neon::matmul_codes, neon::matmul_values, &neon::ROWS,
                          neon::attention_item};

// Every 64-bit Arm has NEON; the dot product came with 8.2.
bool has_neon() {
#if defined(__linux__)
  constexpr unsigned long ASIMDDP = 1ul << 20;  // HWCAP_ASIMDDP of <asm/hwcap.h>, which older headers lack
  return (getauxval(AT_HWCAP) & ASIMDDP) != 0;
#elif defined(__APPLE__)
  int there = 0;
  size_t size = sizeof there;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &there, &size, nullptr, 0) == 0 && there;
#else
  return false;
#endif
}
#endif

}  // namespace

const Kernels* kernels_of(int isa) {
  switch (isa) {
    case KVELL_PLAIN: return &PLAIN;
#if defined(KVELL_BUILD_AVX2)
    case KVELL_AVX2: return has_avx2() ? &AVX2 : nullptr;
#endif
#if defined(KVELL_BUILD_AVX512)
    case KVELL_AVX512: return has_avx512() ? &AVX512 : nullptr;
#endif
#if defined(KVELL_BUILD_NEON)
    case KVELL_NEON: return has_neon() ? &NEON : nullptr;
#endif
    default: return nullptr;
  }
}

}  // namespace kvell

int32_t kvell_abi() { return KVELL_ABI; }
int32_t kvell_has_isa(int32_t isa) { return kvell::kernels_of(isa) != nullptr; }
