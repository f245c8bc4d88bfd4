"""Opening checkpoints: Hugging Face directories and GGUF files, one face for both."""
