// Attention in portable C++: the reference that every other instruction set equals bit for bit.
#include "attention_item.h"
#include "kernels.h"

kvell::AttentionItem kvell::plain::attention_item(int32_t stored) { return item_of(stored); }
