"""Grouped-query attention over the paged KV cache: the layer, the backend's face, and its implementations."""
