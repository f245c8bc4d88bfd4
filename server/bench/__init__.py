"""`kvell bench`: load on any server that speaks OpenAI's streaming API, and what its clients saw."""
