"""A step of a decoder as a native program: recorded, put into sections, placed in memory, lowered to C records, replayed."""
