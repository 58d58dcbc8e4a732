"""Why two operations do not share a kernel, and what kind of a reason that is.

    legality    one kernel could not compute both, or not in any order of its programs
    price       it could, but would be slower, or would need more memory or time to compile
    rule        how kernels are formed: such operations start one, whatever is before them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["legality", "price", "rule"]
NAMED = 2
"""How many nodes a reason names."""


class Reason(NamedTuple):
    """A reason, and its kind. Texts name limits, but no sizes and no nodes of the model, so that
    equal reasons can be counted. `of`: the nodes that it speaks of, beside the two. `by`: the pass
    that gave it."""

    kind: Kind
    text: str
    of: str = ""
    by: str = ""

    def about(self, nodes: Sequence[str]) -> Reason:
        """The reason with the nodes that it speaks of, of which the first ones are named."""
        more = len(nodes) - NAMED
        return self._replace(
            of=", ".join(nodes[:NAMED]) + (f" and {more} more" if more > 0 else ""))

    @property
    def told(self) -> str:
        """The text, with the nodes that it speaks of."""
        return f"{self.text} ({self.of})" if self.of else self.text


def legality(text: str) -> Reason:
    return Reason("legality", text)


def price(text: str) -> Reason:
    return Reason("price", text)


def rule(text: str) -> Reason:
    return Reason("rule", text)


FASTER_APART = price("the target computes it faster in parts")
