"""The OpenAI-shaped HTTP face: wire types, endpoints, server-sent events and errors. Runs without torch."""
