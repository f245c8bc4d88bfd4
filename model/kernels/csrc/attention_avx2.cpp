// Attention with AVX2 and FMA. Compiled with -mavx2 -mfma; nothing here may run before the processor was asked.
#define KVELL_LANES_AVX2
#include "attention_item.h"
#include "kernels.h"

kvell::AttentionItem kvell::avx2::attention_item(int32_t stored) { return item_of(stored); }
