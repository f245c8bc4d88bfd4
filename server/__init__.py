"""kvell's server: HTTP, text and scheduling. Composes `model` and `cache`, which know nothing of each other."""
