"""Delta debugging over lists, and the edits of graphs that it is used for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from compiler.reduction.candidate import Candidate
from compiler.reduction.ddmin import ddmin
from compiler.reduction.graphs import simpler, with_nodes, with_outputs
from compiler.reduction.shrink import smaller_dims
from tests.reduction.conftest import make_model


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 60), st.data())
def test_ddmin_finds_what_matters(count: int, data: st.DataObject) -> None:
    """Where just some items matter, they alone are left, in order."""
    wanted = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4)))
    assert ddmin(range(count), lambda some: set(wanted) <= set(some)) == wanted


def test_ddmin_leaves_out_no_more_than_one_item_in_vain() -> None:
    """Any failing part is 1-minimal, also where failing is no matter of single items."""
    def fails(some: list[int]) -> bool:
        return sum(some) % 7 == 0 and len(some) > 2

    left = ddmin(range(1, 49), fails)
    assert fails(left)
    assert not any(fails([i for i in left if i != j]) for j in left)


def test_a_part_of_a_graph_reads_what_the_rest_made() -> None:
    whole = Candidate(make_model(), {"x": np.zeros((3, 8), np.float32)})
    names = [n.output[0] for n in whole.model.graph.node]
    kept = [names.index("v7"), names.index("v9")]
    values = {f"v{k}": np.ones((3, 8), np.float32) for k in range(6, 10)}
    part = with_nodes(whole, kept, values)
    assert part is not None
    onnx.checker.check_model(part.model, full_check=False)
    assert [n.op_type for n in part.model.graph.node] == ["Tanh", "MatMul"]
    assert {i.name for i in part.model.graph.input} == {"v6", "v8"} == set(part.inputs)
    assert [t.name for t in part.model.graph.initializer] == ["w9"]
    assert [o.name for o in part.model.graph.output] == ["v7", "v9"]


def test_a_body_keeps_what_it_reads_from_outside() -> None:
    whole = Candidate(make_model())
    last = len(whole.model.graph.node) - 1
    part = with_nodes(whole, [last], {"v23": np.ones((3, 8), np.float32),
                                      "c": np.array(True)})
    assert part is not None
    assert {i.name for i in part.model.graph.input} == {"v23", "c"}


def test_outputs_take_with_them_what_only_they_need() -> None:
    model = make_model()
    model.graph.output.append(helper.make_tensor_value_info("v3", 1, None))
    small = with_outputs(Candidate(model), ["v3"])
    assert [n.output[0] for n in small.model.graph.node] == ["v0", "v1", "v2", "v3"]
    assert {t.name for t in small.model.graph.initializer} == {"w0", "w3"}


def test_an_if_becomes_either_branch() -> None:
    edits = list(simpler(Candidate(make_model())))
    lasts = {tuple(n.op_type for n in e.model.graph.node)[-1] for e in edits
             if len(e.model.graph.node) == len(make_model().graph.node)}
    assert {"Relu", "Neg"} <= lasts


def test_dims_become_smaller_everywhere_at_once(tmp_path: Path) -> None:
    whole = Candidate(make_model(), {"x": np.zeros((3, 8), np.float32), "c": np.array(True)})
    first = next(iter(smaller_dims(whole)))
    assert first.inputs["x"].shape == (3, 1)
    assert {tuple(t.dims) for t in first.model.graph.initializer} == {(1, 1)}
    assert first.model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 1
    assert first.save(tmp_path / "small.onnx").exists()
