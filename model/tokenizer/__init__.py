"""Tokenizers and chat templates. Runs on the API side, so nothing here imports torch."""
