"""Calls of a client's functions: how each family of models writes them, read from its text and forced by a grammar."""
