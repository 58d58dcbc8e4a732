"""Memory of this process, aligned to cache lines; and which outputs lie in memory of inputs that
nobody needs after a call.

    backward(%saved: 4 MiB, ...) -> (%dw: 2 MiB, %dv: 2 MiB)     %dw and %dv lie where %saved lay

So a backward pass needs no memory for most of the gradients: what the forward pass has saved makes
room for them. An output may have the memory of an input that is read for the last time in an
earlier step than the one that first writes the output.

An output keeps all memory of its input alive. Outputs therefore move in only together with others
that fill most of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dialects.strata.types import Array

ALIGNMENT = 64
"""Bytes of a cache line. Constants and results are aligned to it."""


def aligned_bytes(count: int) -> Array:
    """Uninitialized memory aligned to a cache line; at least one byte."""
    raw = np.empty(max(count, 1) + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start: start + max(count, 1)]


# ---------------------------------------------------------------------- donation
LEAST = 1 << 16
"""Size in bytes from which an output moves in. A smaller one is not worth the look at a table."""

MOST_LEFT = 4
"""At most one part in so many of an input's memory may stay unused."""


class Home(NamedTuple):
    """Where an output lies: the number of an input, and the offset in its memory, in bytes."""

    given: int
    offset: int


def homes_of(
    rooms: Mapping[int, int], reads: Mapping[int, int], outputs: Mapping[int, int],
    writes: Mapping[int, int], alignment: int = ALIGNMENT,
) -> dict[int, Home]:
    """The numbers of outputs -> their places in inputs. `rooms`, `outputs`: the bytes of the inputs
    that may be overwritten, and of the outputs. `reads`, `writes`: the last step that reads each
    input, and the first one that writes each output. `alignment`: that of outputs, in bytes."""
    found = dict[int, Home]()
    rest = sorted((k for k in outputs if outputs[k] >= LEAST), key=lambda k: -outputs[k])
    for given in sorted(rooms, key=lambda k: (-rooms[k], k)):
        end, chosen = 0, dict[int, Home]()
        for k in rest:
            if reads[given] < writes[k] and end + outputs[k] <= rooms[given]:
                chosen[k] = Home(given, end)
                end += -(-outputs[k] // alignment) * alignment
        if chosen and MOST_LEFT * (rooms[given] - end) <= rooms[given]:
            found |= chosen
            rest = [k for k in rest if k not in chosen]
    return found
