"""However ONNX spells attention: one kernel on CUDA, which computes what the model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.frontend import load_model
from dialects.block import KernelOp
from dialects.host.interpret import interpret_host
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.models.attention_spellings import SPELLINGS, AttentionGraph, Spelling


def found(graph: AttentionGraph, path: Path) -> tuple[Any, list[KernelOp]]:
    """What the CUDA target's tiles compute, and its kernels."""
    imported = load_model(str(path))
    context = TARGET.bind(TargetOptions("sm_90")).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    kernels = [op for op in imported.module.body.block.ops if isinstance(op, KernelOp)]
    [made] = interpret_host(imported.module, list(graph.arrays.values()), imported.weights)
    return made, kernels


def expected(proto: onnx.ModelProto, graph: AttentionGraph) -> Any:
    """The model's own words, in double precision."""
    from onnx.reference import ReferenceEvaluator

    evaluator: Any = ReferenceEvaluator(proto)
    with np.errstate(all="ignore"):
        return evaluator.run(None, graph.arrays)[0]


def check(spelling: Spelling, graph: AttentionGraph, path: Path) -> None:
    proto = graph.finish(spelling(graph))
    onnx.save(proto, path)
    made, kernels = found(graph, path)
    np.testing.assert_allclose(made.astype(float), expected(proto, graph).astype(float),
                               rtol=0, atol=1e-2)
    names = [k.sym_name.data for k in kernels]
    beside = ("_rows", "visible_")  # copies of open rows, and what finds the keys that tables show
    assert len([n for n in names if not any(part in n for part in beside)]) == 1, names


each_spelling = pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda f: f.__name__)


@each_spelling
def test_known_sizes(spelling: Spelling, tmp_path: Path) -> None:
    check(spelling, AttentionGraph({}), tmp_path / "attention.onnx")


@each_spelling
def test_open_sizes(spelling: Spelling, tmp_path: Path) -> None:
    check(spelling, AttentionGraph({}, rows=33, length=50, open_sizes=True),
          tmp_path / "attention.onnx")
