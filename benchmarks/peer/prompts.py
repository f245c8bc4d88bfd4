"""Twenty prompts of many kinds, for comparing first tokens with a reference."""

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village at the foot of a mountain, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils at a temperature of",
    "Q: What is 17 + 25?\nA:",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three most important inventions of the nineteenth century were the steam engine, the",
    "SELECT name, age FROM people WHERE age >",
    "Photosynthesis is the process by which plants",
    "# Shopping list\n\n- milk\n- eggs\n- ",
    "Der Hund läuft über die Straße und",
    "La vie est belle quand on",
    '{"name": "Alice", "age": 30, "city": "',
    "To be, or not to be, that is the",
    "1, 1, 2, 3, 5, 8, 13,",
    "Breaking news: scientists have discovered",
    "<html>\n<head>\n<title>",
    "It was a dark and stormy night; the rain fell in torrents, except at occasional intervals, when it was",
    "Ingredients: 200 g flour, 100 g sugar, two eggs. Method: First,",
    "User: My computer does not start any more. What should I do?\nAssistant:",
)
