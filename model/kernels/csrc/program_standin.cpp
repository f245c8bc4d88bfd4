// Stand-in row kernels in plain C, until ops_*.cpp are there.
#include <cmath>
#include <cstring>

#include "half.h"
#include "program_parts.h"

namespace kvell {
namespace {
void norm(const float* x, const float* weight, int n, float epsilon, float* out) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double(x[i]) * x[i];
  const float r = float(1.0 / std::sqrt(sum / n + epsilon));
  for (int i = 0; i < n; ++i) out[i] = x[i] * r * weight[i];
}
void rotate(const float* x, const float* c, const float* s, int pairs, float* out) {
  for (int i = 0; i < pairs; ++i) {
    const float l = x[i], r = x[i + pairs];
    out[i] = l * c[i] - r * s[i];
    out[i + pairs] = r * c[i] + l * s[i];
  }
}
void silu(const float* g, const float* u, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = g[i] / (1.0f + std::exp(-g[i])) * u[i];
}
void gelu(const float* g, const float* u, int n, float* out) {
  for (int i = 0; i < n; ++i)
    out[i] = 0.5f * g[i] * (1.0f + std::tanh(0.7978845608f * (g[i] + 0.044715f * g[i] * g[i] * g[i]))) * u[i];
}
void store(const float* x, int n, int32_t stored, void* out) {
  if (stored == KVELL_CACHE_F32) {
    std::memcpy(out, x, size_t(n) * 4);
    return;
  }
  for (int i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const uint16_t half = x[i] != x[i] ? uint16_t((bits | 0x400000u) >> 16) : uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    std::memcpy(static_cast<uint8_t*>(out) + 2 * i, &half, 2);
  }
}
const RowKernels KERNELS{norm, rotate, silu, gelu, store};
}  // namespace
const RowKernels& row_kernels_of(int) { return KERNELS; }
}  // namespace kvell
