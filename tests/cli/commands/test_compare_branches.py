"""Variants of a strategy that are lowered together become what each alone becomes, in fewer passes;
code of the first ones is compiled while the others are lowered."""

from __future__ import annotations

import argparse
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp, StringAttr

from compiler.cli.commands.compare import add_arguments
from compiler.cli.execution import WantedInputs
from compiler.measuring.ahead import Ahead
from compiler.measuring.branches import are_same, contents_of
from compiler.measuring.programs import Builder, Prepared, with_groups
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.strategies import GROUPS, PER_OP, STRATEGIES, WHOLE_GRAPH
from compiler.pipeline.text import format_module
from dialects.graph import AddOp, ExpOp
from dialects.text.syntax import location
from passes.base import PassError, StrataContext
from passes.loop.fuse import LoopFuse
from targets.options import TargetOptions
from targets.parts import Building
from tests.cli.conftest import Run
from tests.passes.harness import parse

RNG = np.random.default_rng(0)
Weights = dict[str, Any]


def saved(
    file: Path, nodes: Sequence[Any], shapes: Mapping[str, Sequence[Any]], weights: Weights
) -> str:
    """A model from the input x to the output y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in shapes.items())
    constants = [numpy_helper.from_array(np.asarray(array), name)
                 for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file.write_bytes(model.SerializeToString())
    return str(file)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def images(file: Path) -> str:
    """Two equal residual blocks of convolutions with batch norms, and a linear layer."""
    weights: Weights = {"flat": np.array([1, 16], np.int64), "head": floats(16, 5)}
    nodes, last = list[Any](), "x"
    for k in range(2):
        weights |= {f"f{k}": floats(16, 16, 3, 3), f"v{k}": np.ones(16, np.float32),
                    **{f"{name}{k}": floats(16) for name in "sbm"}}
        nodes += [helper.make_node("Conv", [last, f"f{k}"], [f"c{k}"], pads=[1] * 4),
                  helper.make_node("BatchNormalization",
                                   [f"c{k}", f"s{k}", f"b{k}", f"m{k}", f"v{k}"], [f"n{k}"]),
                  helper.make_node("Add", [f"n{k}", last], [f"a{k}"]),
                  helper.make_node("Relu", [f"a{k}"], [f"r{k}"])]
        last = f"r{k}"
    nodes += [helper.make_node("GlobalAveragePool", [last], ["p"]),
              helper.make_node("Reshape", ["p", "flat"], ["q"]),
              helper.make_node("MatMul", ["q", "head"], ["y"])]
    return saved(file, nodes, {"x": [1, 16, 12, 12], "y": [1, 5]}, weights)


def rows(file: Path) -> str:
    """Attention and a perceptron over an open number of rows."""
    weights = {name: floats(16, 16) for name in "qkvu"}
    nodes = [*(helper.make_node("MatMul", ["x", n], [f"{n}x"]) for n in "qkv"),
             helper.make_node("Transpose", ["kx"], ["kt"], perm=[1, 0]),
             helper.make_node("MatMul", ["qx", "kt"], ["s"]),
             helper.make_node("Softmax", ["s"], ["p"]),
             helper.make_node("MatMul", ["p", "vx"], ["o"]),
             helper.make_node("Add", ["x", "o"], ["h"]),
             helper.make_node("Sigmoid", ["h"], ["g"]),
             helper.make_node("MatMul", ["g", "u"], ["z"]),
             helper.make_node("Add", ["z", "z"], ["zz"]),
             helper.make_node("Add", ["zz", "h"], ["y"])]
    return saved(file, nodes, {"x": ["n", 16], "y": ["n", 16]}, weights)


def bytes_(file: Path) -> str:
    """A quantized product."""
    weights = {"w": RNG.integers(-99, 99, (8, 8)).astype(np.int8), "one": np.float32(0.1),
               "zero": np.uint8(3), "none": np.int8(0)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
             helper.make_node("DequantizeLinear", ["xq", "one", "zero"], ["xf"]),
             helper.make_node("DequantizeLinear", ["w", "one", "none"], ["wf"]),
             helper.make_node("MatMul", ["xf", "wf"], ["p"]),
             helper.make_node("Relu", ["p"], ["y"])]
    return saved(file, nodes, {"x": [3, 8], "y": [3, 8]}, weights)


def builder_of(model: str) -> Builder:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args([model, *(["--dim", "n=5"] if "rows" in model else [])])
    return Builder(model, WantedInputs(given), [], "", cannot_run="only lowered here")


def variants_of(options: CompileOptions, strategy: str) -> dict[str, CompileOptions]:
    if strategy == WHOLE_GRAPH:
        return {g: with_groups(options, strategy, (), (g,)) for g in GROUPS}
    return {g: with_groups(options, strategy, (g,)) for g in GROUPS
            if g not in STRATEGIES[strategy]}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each pass runs."""
    found, run_step = Counter[str](), Compiler.run_step

    def counting(self: Compiler, state: Any, planned: Any, k: int) -> float:
        found[planned[k].step.name] += 1
        return run_step(self, state, planned, k)

    monkeypatch.setattr(Compiler, "run_step", counting)
    return found


# ---------------------------------------------------------------------- equal to each alone
@pytest.mark.parametrize(("model", "target"), [
    (images, "cpu"), (rows, "cuda"), (bytes_, "cpu")])
@pytest.mark.parametrize("strategy", [WHOLE_GRAPH, PER_OP])
def test_variants_are_what_they_are_alone(
    tmp_path: Path, ran: Counter[str], model: Callable[[Path], str], target: str, strategy: str
) -> None:
    """Text with locations, work, and the code by which equal programs are known, of all groups."""
    builder = builder_of(model(tmp_path / f"{model.__name__}.onnx"))
    options = CompileOptions(target=target, features="sm_90" if target == "cuda" else "avx2",
                             precision="fp16" if target == "cuda" else "f32", cache="off")
    options, variants = with_groups(options, strategy), variants_of(options, strategy)
    trunk = builder.prepared(options)
    ran.clear()
    found = dict(builder.varied(options, variants))
    together = ran.total()
    assert found.keys() == variants.keys()
    ran.clear()
    for group, own in variants.items():
        alone, made = builder.prepared(own), found[group]
        made = trunk if made is None else made
        assert isinstance(made, Prepared) and made.code == alone.code, group
        assert format_module(made.state.module) == format_module(alone.state.module), group
        assert made.watch.work(made.sizes) == alone.watch.work(alone.sizes), group
    assert together < 0.7 * ran.total()


def test_lowerings_are_as_many_as_there_are_differences(
    tmp_path: Path, ran: Counter[str]
) -> None:
    """Groups that change nothing cost no lowering, and the others begin where they differ."""
    builder = builder_of(images(tmp_path / "images.onnx"))
    options = CompileOptions(features="avx2", cache="off")
    variants = variants_of(options, WHOLE_GRAPH)
    found = dict(builder.varied(options, variants))
    assert {g for g, made in found.items() if made is None} >= {"quantize", "precision"}
    made = [f for f in found.values() if isinstance(f, Prepared)]
    assert ran["loop-to-block"] in (len(made), len(made) + 1)  # of each, and perhaps of the trunk
    assert ran["graph-fold-sizes"] == 2  # of the trunk, and without shared layers
    assert ran["graph-decompose"] < len(made)


# ---------------------------------------------------------------------- failures
def test_variants_of_a_strategy_that_fails_are_lowered_alone(
    strata: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the group that fails, there is a program; where it is added, there is none."""
    run = LoopFuse.run

    def failing(self: LoopFuse, context: Any, module: ModuleOp) -> None:
        if self.across and str(module).count("loop.nest") > 1:  # so that a probe is compiled
            raise PassError("loop-fuse", [("", "fusion is broken today")])
        run(self, context, module)

    monkeypatch.setattr(LoopFuse, "run", failing)
    done = strata("compare", bytes_(tmp_path / "bytes_.onnx"), "--threads", 1, "--rounds", 1,
                  "--groups", "fuse,memory,layout", "--json", "f.json")
    assert done.status == 1, done.err
    found = json.loads(Path("f.json").read_text())
    assert set(found["problems"]) == {
        "block", "whole-graph", "whole-graph without memory", "whole-graph without layout",
        "per-op with fuse"}
    rows_ = {row["group"]: row for row in found["ablation"]}
    assert list(rows_) == ["fuse", "memory", "layout"]
    assert rows_["fuse"]["without_ms"] > 0 and rows_["fuse"]["alone_ms"] is None
    assert rows_["layout"]["without_ms"] is None and rows_["layout"]["alone_ms"] > 0


# ---------------------------------------------------------------------- what changes a module
TEXT = """builtin.module {
  strata.func @main(%x: f32[4], %z: f32[4]) -> (f32[4]) inputs ["x", "z"] outputs ["y"] {
    %a = graph.add %x, %z : f32[4]
    %y = graph.exp %a : f32[4]
    strata.return %y
  }
}
"""


def first(module: ModuleOp, kind: type) -> Any:
    return next(op for op in module.walk() if isinstance(op, kind))


def renamed(module: ModuleOp) -> None:
    first(module, AddOp).results[0].name_hint = "b"


def relocated(module: ModuleOp) -> None:
    first(module, AddOp).location = location("elsewhere")


def swapped(module: ModuleOp) -> None:
    op = first(module, AddOp)
    op.operands = op.operands[::-1]


def noted(module: ModuleOp) -> None:
    first(module, AddOp).attributes["more"] = StringAttr("more")


def moved(module: ModuleOp) -> None:
    op = first(module, ExpOp)
    block = op.parent
    op.detach()
    block.insert_op_before(op, block.first_op)


def erased(module: ModuleOp) -> None:
    op = first(module, ExpOp)
    op.results[0].replace_all_uses_with(op.operands[0])
    op.detach()
    op.erase()


@pytest.mark.parametrize("change", [renamed, relocated, swapped, noted, moved, erased])
def test_every_change_is_one(change: Callable[[ModuleOp], None]) -> None:
    module = parse(TEXT, StrataContext.with_dialects())
    before = contents_of(module)
    assert are_same(before, contents_of(module))
    change(module)
    assert not are_same(before, contents_of(module))


# ---------------------------------------------------------------------- code in a thread
def test_only_shared_code_is_waited_for() -> None:
    go_on, compiled = threading.Event(), list[int]()

    class Slow(Building):
        def compile_ahead(self, jobs: Sequence[Any]) -> None:
            assert 1 not in jobs or go_on.wait(10)
            compiled.extend(jobs)

    ahead = Ahead(Slow("slow", (), TargetOptions()))
    first = ahead.begin({"a": 1, "b": 2})
    other, both = ahead.begin({"c": 3}), ahead.begin({"b": 2, "c": 3, "d": 4})
    assert [ready.result(10) for ready in other] == [None]
    assert first < both and not any(ready.done() for ready in first)
    go_on.set()
    assert [ready.result(10) for ready in both] == [None] * 3
    assert sorted(compiled) == [1, 2, 3, 4]  # each once
