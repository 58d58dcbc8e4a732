"""Which nodes and launches are neighbours, and which pass says why they are two kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from xdsl.dialects.builtin import ModuleOp

from compiler.explaining.collect import JOINED, Explanation
from compiler.explaining.edges import edges_of
from compiler.explaining.pairs import DIVIDED, LAYERS, ONE_NODE, PARTS, links_of
from compiler.frontend import MemoryModel
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.steps import PIPELINE
from compiler.pipeline.text import parse_module
from dialects.block import KernelOp
from dialects.host import host_functions
from passes.base import StrataContext
from tests.counts import models
from tests.models.onnx_graph import OnnxGraph
from tests.models.test_shared_layers import SHARED, UNSHARED, after, model

LAYERED = """builtin.module {
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 2]) inputs ["x"] outputs ["y"] {
    %h = graph.abs %x : f32[n, 2] loc("head")
    %a = strata.call @layer number 0 of ["a0", "b0"] (%h) : f32[n, 2]
    %b = strata.call @layer number 1 of ["a1", "b1"] (%a) : f32[n, 2]
    %t = graph.neg %b : f32[n, 2] loc("tail")
    strata.return %t
  }
  strata.func @layer(%x: f32[n, 2]) -> (f32[n, 2]) sizes(n) inputs ["x"] outputs ["0"] {
    %e = graph.exp %x : f32[n, 2] loc("a0")
    %f = graph.tanh %e : f32[n, 2] loc("b0")
    strata.return %f
  }
}"""
ADD = """
  block.kernel @{name}(%a: f32[n], %y: f32[n]) grid(%c: n ceildiv 64) sizes(n) {{
    %v = block.load %a[64*%c + t0] check [0] pad 0.0 : tile<64xf32>
    block.store %v, %y[64*%c + t0] check [0]
    block.yield
  }}
"""
CHOSEN = f"""builtin.module {{ {"".join(ADD.format(name=n) for n in ("k", "k_v1", "after"))}
  host.func @main(%x: f32[n], %y: f32[n])
      inputs ["x"] outputs ["y"] sizes(n) arena(4*n) {{
    %h = host.alloc offset 0 : f32[n]
    host.launch @k(%x, %h) sizes(n) when -min(1, n floordiv 8) + 1
    host.launch @k_v1(%x, %h) sizes(n) when min(1, n floordiv 8)
    host.launch @after(%h, %y) sizes(n)
    host.return
  }}
}}"""
"""Of the first two launches one happens, by the size."""


def parse(text: str) -> ModuleOp:
    return parse_module(text, StrataContext.with_dialects(), Path("m.mlir"))


def explained(target: str, given: Any, **more: str) -> Explanation:
    found = Explanation(target=target)
    features = {"features": "avx2"} if target == "cpu" else {}
    options = CompileOptions(target, cache="off", tuned="off", threads=1, **features, **more)
    Compiler(given, options, [found]).lower()
    return found


def test_nodes_of_calls_read_only_their_neighbours() -> None:
    """A node of one call of a shared function is no neighbour of all nodes of the next one."""
    assert edges_of(parse(LAYERED)) == [
        ("head", "a0"), ("a0", "b0"), ("b0", "a1"), ("a1", "b1"), ("b1", "tail")]


def test_launches_of_which_one_happens_are_no_neighbours() -> None:
    """Neither writes a part of what the other writes; whoever reads it may read what either made.
    """
    module = parse(CHOSEN)
    [function] = host_functions(module)
    kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}
    links = [*links_of(function, kernels)]
    assert [(x.first.kernel, x.second.kernel, x.between) for x in links] == [
        ("k", "after", None), ("k_v1", "after", None)]


def test_reasons_name_passes_that_there_are() -> None:
    passes = {step.name for step in PIPELINE}
    assert {*DIVIDED, ONE_NODE.by, PARTS.by, *LAYERS.split(", ")} <= passes


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_each_pair_that_is_apart_names_the_pass_that_decided(
    target: str, name: str, tmp_path: Path
) -> None:
    if target == "cuda":
        pytest.importorskip("triton")
    path = tmp_path / "m.onnx"
    onnx.save(getattr(models, name)().model, path)
    found = explained(target, str(path))
    apart = [p for p in found.pairs if not p.fused]
    passes = {step.name for step in PIPELINE}
    assert apart
    for pair in apart:
        assert pair.by and {*pair.by.split(", ")} <= passes, pair
        assert pair.told.endswith(f" [{pair.by}]") and pair.json["pass"] == pair.by


def test_a_convolution_with_fewer_products_says_so() -> None:
    """The three computations of Winograd's form, at whose nests a pass after it looked, too."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [1, 64, 56, 56])
    y = g.node("Conv", x, g.random_weight(64, 64, 3, 3), pads=[1, 1, 1, 1])
    found = explained("cpu", MemoryModel("m.onnx", g.model({"y": y}).SerializeToString()))
    told = [p for p in found.pairs if not p.fused and p.by.startswith("loop-winograd, ")]
    assert told and all(DIVIDED["loop-winograd"].text in p.reason for p in told)


@pytest.mark.parametrize("passes", [SHARED, UNSHARED])
def test_parts_of_a_kernel_name_the_pass_that_formed_it(passes: str) -> None:
    found = explained("cpu", model(after, given=True), passes=passes)
    names = {step.name for step in PIPELINE}
    told = [p.reason.partition("; ")[0] for p in found.pairs if p.reason.startswith(JOINED)]
    assert all(text.removeprefix(f"{JOINED}, which ").removesuffix(" formed") in names
               for text in told)
