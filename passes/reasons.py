"""Why two operations do not share a kernel, and what kind of a reason that is.

    legality    one kernel could not compute both, or not in any order of its programs
    price       it could, but would be slower, or would need more memory or time to compile
    rule        how kernels are formed: such operations start one, whatever is before them
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["legality", "price", "rule"]


class Reason(NamedTuple):
    """A reason, and its kind. Texts name limits, but no sizes of the model, so that equal reasons
    can be counted."""

    kind: Kind
    text: str


def legality(text: str) -> Reason:
    return Reason("legality", text)


def price(text: str) -> Reason:
    return Reason("price", text)


def rule(text: str) -> Reason:
    return Reason("rule", text)


FASTER_APART = price("the target computes it faster in parts")
