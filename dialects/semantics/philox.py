"""Philox4x32-10: random bits as a function of a counter and a key.

Ten rounds mix the four words of a counter with the two words of a key. Whoever knows both knows
the bits, so elements can be computed in any order, on any machine, and again.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from typing import Any

_MASK = 0xFFFFFFFF
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(place: Any, seed: Any, draw: int) -> Any:
    """64 random bits: the first two words for the counter (place, draw, 0) and the key `seed`.

    `place` and `seed` are 64-bit integers: NumPy arrays, or whatever has their operators. Words are
    kept in the low half of 64 bits, so that signed and unsigned integers give the same.
    """
    words = philox_words((_low(place), _high(place), draw, 0), (_low(seed), _high(seed)))
    return words[0] | (words[1] << 32)


def philox_words(counter: tuple[Any, ...], key: tuple[Any, Any]) -> tuple[Any, ...]:
    """The four words for the four of a counter and the two of a key."""
    words, (first, second) = counter, key
    for _ in range(_ROUNDS):
        words = _mixed(words, first, second)
        first, second = _low(first + _STEPS[0]), _low(second + _STEPS[1])
    return words


def _mixed(words: tuple[Any, ...], first: Any, second: Any) -> tuple[Any, ...]:
    """The words after a round. A key stands on the left, since words may be numbers at first."""
    left, right = words[0] * _FACTORS[0], words[2] * _FACTORS[1]
    return (first ^ words[1] ^ _high(right), _low(right),
            second ^ words[3] ^ _high(left), _low(left))


def _low(bits: Any) -> Any:
    return bits & _MASK


def _high(bits: Any) -> Any:
    return (bits >> 32) & _MASK
