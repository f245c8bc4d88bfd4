"""One short file of data per model family: how its config maps to `ModelConfig` and how its weights are named."""
