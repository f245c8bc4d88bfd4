"""A decoder's step as a native program: recorded, put into sections, placed in memory, lowered to C records."""
