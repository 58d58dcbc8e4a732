"""The helper functions that a generated module must define, and their text.

They are NaN-propagating and other combiners of reductions, and mathematical functions that Triton
lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from targets.cuda.emit.helpers.functions import LARGE, NEAR, POLYNOMIALS, TYPED, UNTYPED
from targets.cuda.emit.helpers.quick import COMPOSED, QUICK
from targets.cuda.emit.helpers.rank_functions import RANK_FUNCTIONS
from targets.cuda.emit.helpers.single import PARTS, SINGLE

Helper = tuple[str, str]
"""A function and its float type ("" for functions of any type)."""

_PLAIN = {**UNTYPED, **PARTS, **COMPOSED, **RANK_FUNCTIONS}
"""The functions whose text is the same for all types."""

HELPER_NAMES = frozenset(
    (*_PLAIN, *QUICK, *(f"{n}_{d}" for n in TYPED for d in ("f32", "f64"))))
"""Names that the variables of a kernel must not use."""

_TYPED_CALL = re.compile(rf"\b({'|'.join(TYPED)})_(f32|f64)\(")
_PLAIN_CALL = re.compile(rf"\b({'|'.join((*_PLAIN, *QUICK))})\(")


def helper_of(name: str, element: str) -> Helper:
    """The helper `name` for operands of `f64`, or for operands that are computed in f32."""
    return (name, "f64" if element == "f64" else "f32") if name in TYPED else (name, "")


def helper_texts(used: Iterable[Helper], instructions: bool) -> list[str]:
    """The definitions, each after those that it calls. `instructions`: use NVIDIA instructions."""
    ordered: dict[Helper, None] = {}
    for helper in sorted(used):
        _add(helper, ordered)
    return ["@triton.jit" + _text(name, kind, instructions) for name, kind in ordered]


def _add(helper: Helper, ordered: dict[Helper, None]) -> None:
    name, kind = helper
    body = _text(name, kind, instructions=False).partition(":")[2]
    for needed in _TYPED_CALL.findall(body):
        _add(needed, ordered)
    for needed in _PLAIN_CALL.findall(body):
        _add((needed, ""), ordered)
    ordered.setdefault(helper)


def _text(name: str, kind: str, instructions: bool) -> str:
    if name in QUICK:
        return QUICK[name][not instructions]
    if not kind:
        return _PLAIN[name]
    single = kind == "f32"
    coefficients = POLYNOMIALS.get((name, kind), (0.0,))
    template = SINGLE.get(name, TYPED[name]) if single else TYPED[name]
    return template.format(
        d=kind, width=32 if single else 64, near=NEAR[kind], large=LARGE[kind],
        whole=float(2 ** (23 if single else 52)), polynomial=_horner(coefficients),
        steps=9 if single else 75,
        quotient="tl.div_rn(x, y)" if single else "x / y",
        root="tl.sqrt_rn(x)" if single else "tl.sqrt(x)")


def _horner(coefficients: tuple[float, ...]) -> str:
    """`c0 + s * (c1 + s * (...))`."""
    text = repr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        text = f"{c!r} + s * ({text})"
    return text
