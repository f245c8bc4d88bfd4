"""Requests, scheduling and the two sides of the engine process. Text handling here runs on the API side only."""
