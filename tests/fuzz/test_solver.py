"""Models that Z3 made sizes for compute what the reference in f64 and onnxruntime compute.

The models of the first numbers always; `make test-all` has 20,000. A failure names the number:
`python -m tests.fuzz.solver --show NUMBER` shows that model, and `--first NUMBER --count 1 -o DIR`
makes it small.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

pytest.importorskip("z3")
pytest.importorskip("onnxruntime")

from tests.fuzz.solver.generate import Unusable, generate, theme_of
from tests.fuzz.solver.outline import DOMAIN
from tests.fuzz.solver.work import work

QUICK, CHUNK, ALL = 20, 100, 20_000


def check(numbers: range) -> None:
    outcomes = [work(number, 0) for number in numbers]
    found = {o.number: f"{o.kind}: {o.text}" for o in outcomes if o.fails}
    assert found == {}
    assert sum(o.kind == "" for o in outcomes) > 0.8 * len(numbers)


@pytest.mark.parametrize("first", range(0, QUICK, 10))
def test_some_models(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where reproducers go
    check(range(first, first + 10))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, CHUNK))
def test_many_models(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(range(first, first + CHUNK))


def test_models_are_valid_and_always_the_same() -> None:
    seen = 0
    for number in range(100, 140):
        try:
            drawn, again = generate(number), generate(number)
        except Unusable:
            continue
        seen += 1
        onnx.checker.check_model(drawn.proto)
        assert drawn.proto.SerializeToString() == again.proto.SerializeToString()
        assert [f.keys() for f in drawn.feeds] == [f.keys() for f in again.feeds]
    assert seen > 30


def test_functions_declare_the_attributes_that_they_refer_to() -> None:
    """Also a function of nodes from another function, whose call hands its attributes on."""
    handed_on = 0
    for number in [k for k in range(120) if theme_of(k, 57) == "functions"] + [2365, 3427, 19948]:
        try:
            drawn = generate(number, 57)
        except Unusable:
            continue
        for function in drawn.proto.functions:
            declared = {*function.attribute, *(a.name for a in function.attribute_proto)}
            told = [a for node in function.node for a in node.attribute if a.ref_attr_name]
            assert {a.ref_attr_name for a in told} <= declared, number
            handed_on += any(node.domain == DOMAIN and a.ref_attr_name for node in function.node
                             for a in node.attribute)
    assert handed_on


def test_models_are_varied() -> None:
    """Many operators, several sizes per model, empty tensors, and most element types."""
    operators, types, several, empty = set[str](), set[int](), 0, 0
    for number in range(300):
        try:
            drawn = generate(number)
        except Unusable:
            continue
        operators |= {node.op_type for node in drawn.proto.graph.node}
        types |= {i.type.tensor_type.elem_type for i in drawn.proto.graph.input}
        several += len(drawn.feeds) > 1
        empty += any(0 in a.shape for feed in drawn.feeds for a in feed.values())
    assert len(operators) > 110 and len(types) > 10
    assert several > 60 and empty > 5
