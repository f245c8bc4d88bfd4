// Attention with NEON.
#define KVELL_LANES_NEON
#include "attention_item.h"
#include "kernels.h"

kvell::AttentionItem kvell::neon::attention_item(int32_t stored) { return item_of(stored); }
