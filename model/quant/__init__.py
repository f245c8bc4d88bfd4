"""Weights: a `Weight` owns its storage format and its matmul."""
