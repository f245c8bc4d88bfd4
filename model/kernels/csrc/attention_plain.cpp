// Attention in portable C++: the reference that every other instruction set equals bit for bit.
#include "attention_item.h"

kvell::AttentionItem kvell::attention_item_plain(int32_t stored) { return item_of(stored); }
