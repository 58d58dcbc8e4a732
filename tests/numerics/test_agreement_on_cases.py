"""NaN and infinities in the inputs of ONNX's own cases: the CPU gives what the reference gives.

`test_agreement.py` does so with our samples of operators. ONNX's cases have the younger ones, with
every combination of optional inputs and outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.case.node import collect_testcases

import compiler
from compiler.frontend import MemoryModel
from dialects.strata.types import Array
from tests.numerics.test_agreement import compared, edged, outcome

HALVES = re.compile("f16|fp16|bf16|bfloat16|float16")
OPERATORS = ("Attention", "CausalConvWithState", "Einsum", "LinearAttention", "RotaryEmbedding")
FEW = ("test_attention_4d_attn_mask_bool", "test_rotary_embedding")
"""Cases that are always tested; the others of `OPERATORS` are slow together."""


@cache
def cases() -> dict[str, Any]:
    return {c.name: c for c in collect_testcases(None)
            if c.model.graph.node[0].op_type in OPERATORS and "expanded" not in c.name}


def disagreements(case: Any) -> Iterator[str]:
    model = MemoryModel("model.onnx", case.model.SerializeToString())
    cpu = compiler.compile(model, threads=1, denormals="keep", cache="off")
    reference = compiler.compile(model, target="reference", cache="off")
    names = [i.name for i in case.model.graph.input]
    arrays: list[Array] = list(case.data_sets[0][0])
    for seed, part in enumerate((0.3, 0.05, 1.0)):
        rng = np.random.default_rng(seed)
        given = {name: array if array.dtype.kind in "iu" else edged(array, rng, True, part)
                 for name, array in zip(names, arrays, strict=True)}
        tolerance = 1e-2 if HALVES.search(case.name) else 1e-3
        if text := compared(outcome(lambda g=given: cpu(**g)), outcome(lambda g=given: reference(
                **g)), tolerance):
            yield f"{case.name}, {part}: {text}"


@pytest.mark.parametrize("name", FEW)
def test_a_few_cases(name: str) -> None:
    assert list(disagreements(cases()[name])) == []


@pytest.mark.slow
@pytest.mark.parametrize("op_type", OPERATORS)
def test_all_cases(op_type: str) -> None:
    own = [c for c in cases().values() if c.model.graph.node[0].op_type == op_type]
    assert own
    assert [text for case in own for text in disagreements(case)] == []
