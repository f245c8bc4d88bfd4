"""One uniform random number per (seed, choice, position): a counter-based generator, so there is no state to keep.

Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): ten rounds
of multiplication and mixing turn a 64-bit key and a 128-bit counter into 128 random bits. Knows no tokens.
"""

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW32 = 0xFFFFFFFF
LOW64 = 0xFFFFFFFFFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """128 random bits as four 32-bit words, least significant first. All words in and out are 32 bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0 = MULTIPLIERS[0] * c0
        product1 = MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (product1 >> 32) ^ c1 ^ k0, product1 & LOW32, (product0 >> 32) ^ c3 ^ k1, product0 & LOW32
        k0, k1 = (k0 + WEYL[0]) & LOW32, (k1 + WEYL[1]) & LOW32
    return c0, c1, c2, c3


def uniform(seed: int, choice: int, position: int, *, stream: int = 0) -> float:
    """A number in [0, 1) with 53 random bits. The seed is the key; position and choice are the counter.

    seed is any integer and counts modulo 2**64, so -1 and 2**64 - 1 are the same seed. choice and position are in
    [0, 2**64). stream 0 and 1 are two independent numbers: the halves of the 128 bits.
    """
    key = seed & LOW64
    counter = (position & LOW32, position >> 32, choice & LOW32, choice >> 32)
    low, high = philox(counter, (key & LOW32, key >> 32))[2 * stream : 2 * stream + 2]
    return ((high << 32 | low) >> 11) * 2.0**-53
