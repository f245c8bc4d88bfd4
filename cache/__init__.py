"""Which block of the KV cache holds what. Knows no model and no server; only `cache.pool` touches tensors."""
