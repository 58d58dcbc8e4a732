"""Differences that were looked into and are nobody's fault here: each with its reason.

They are counted, and are no failures. An entry says what a model must have, and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx

from tests.fuzz.solver.generate import Generated
from tests.fuzz.solver.judge import Finding, judge
from tests.fuzz.solver.partings import (
    IMPRECISE,
    comes_from,
    counts_of_rounded,
    ends_at_last,
    folds_halves,
    leaves_dims,
    leaves_memory,
    parts_at,
    rounds_with_zero_point,
)


@dataclass(frozen=True)
class Explanation:
    """`applies`: whether it explains a finding about a model."""

    reason: str
    applies: Callable[[Generated, Finding], bool]


def operators(graph: onnx.GraphProto) -> set[str]:
    """Also those in bodies; not those in functions."""
    found = {node.op_type for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= operators(attribute.g)
    return found


def _open_zero(drawn: Generated, found: Finding) -> bool:
    del drawn
    return found.kind == "refused" and re.search(
        r"do not broadcast: (0 and [^\W\d]\w*|[^\W\d]\w* and 0)\n", found.text + "\n") is not None


def _infinite_filter(drawn: Generated, found: Finding) -> bool:
    return drawn.special and found.kind == "wrong" and "ConvTranspose" in operators(
        drawn.proto.graph) and "float64(nan), not" in found.text


def _documented(drawn: Generated, found: Finding) -> bool:
    """It is gone with the options that the README names for NaN, infinities and denormals."""
    return drawn.special and found.kind == "wrong" and "float64(nan), not" in found.text and (
        not judge(drawn, peer=False, plain=True))


def _broadcast_at_run(drawn: Generated, found: Finding) -> bool:
    """The code refuses the run, and names two sizes of which one is 1."""
    del drawn
    return found.kind in ("refused", "reference") and re.search(
        r"at a run: sizes do not fit .* needs .+ == .+, which is (\d+ == 1|1 == \d+)\b",
        found.text) is not None


EXPLANATIONS = (
    Explanation("two sizes that only a run tells are taken to be equal: a run where one of them is "
                "1, and broadcasts, is refused by name", _broadcast_at_run),
    Explanation("onnxruntime's products of integers end at the last number of the type",
                partial(parts_at, of=ends_at_last)),
    Explanation("onnxruntime's sigmoid gives 0 for what f32 can hold, and NonZero and a cast to "
                "truth values show that",
                partial(parts_at, of=counts_of_rounded)),
    Explanation("a filter of ConvTranspose that is an input is taken to be finite: where nothing "
                "is added, 0 times NaN is", _infinite_filter),
    Explanation("denormals count as zeros, and Winograd's convolution hands NaN to neighbours; "
                "with `--exact --denormals keep` it is right", _documented),
    Explanation("a dim of 0 in a file is an open size, which is 1 or more until a run tells",
                _open_zero),
    Explanation("onnxruntime leaves dims of reductions of nothing that are counted from the end",
                partial(parts_at, of=leaves_dims)),
    Explanation("onnxruntime's QLinearMul and QLinearAdd add the zero point before they round ties "
                "to even", partial(parts_at, of=rounds_with_zero_point)),
    Explanation("onnxruntime subtracts squares in CDist, and in LRN those that leave the window",
                partial(comes_from, of=IMPRECISE)),
    Explanation("onnxruntime does not write a product of integers that has no terms",
                partial(comes_from, of=(leaves_memory,))),
    Explanation("onnxruntime computes in f32 what is computed of constants in halves",
                folds_halves),
)


def explanation_of(drawn: Generated, found: Finding) -> str:
    """The reason why a finding is none; empty where there is none."""
    return next((e.reason for e in EXPLANATIONS if e.applies(drawn, found)), "")
