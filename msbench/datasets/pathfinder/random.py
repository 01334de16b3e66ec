"""Random number stream of one image: SplitMix64, with equal results in Python and C++."""

from hashlib import blake2b

WORD = 2**64 - 1


def first_state(seed: int, batch: int, index: int) -> int:
    """Return the first state of the stream of image `index` of `batch`: a hash of seed, batch and index."""
    key = f"{seed} {batch} {index}".encode()
    return int.from_bytes(blake2b(key, digest_size=8, person=b"pathfinder").digest(), "little")


class RandomStream:
    """Unlimited random numbers (Steele, Lea and Flood 2014); see ``below`` of ``native/pathfinder.cpp``."""

    def __init__(self, state: int) -> None:
        self.state = state

    def below(self, bound: int) -> int:
        """Draw uniformly from [0, bound); the modulo bias is under bound / 2^64."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & WORD
        return (mixed ^ (mixed >> 31)) % bound
