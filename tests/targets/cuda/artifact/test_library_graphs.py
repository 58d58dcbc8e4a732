"""Graphs of libraries for GPUs: the nodes and edges that the compiler's own process asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dialects.symbolic.symbol import Symbol
from targets.cuda.machine import machine_of
from targets.cuda.runtime.dependencies import waits_of
from targets.cuda.runtime.graph_cache import accesses_of
from targets.cuda.runtime.planned import Copy
from tests.targets.cpu.artifact.shipped import needs_tools
from tests.targets.cuda.artifact.test_cuda_libraries import (
    COPIES,
    NET,
    FakeGpu,
    numbers,
    parts_of,
    written,
)

pytestmark = needs_tools
pytest.importorskip("triton")
LAYERS = 40
"""Of products and softmaxes: more nodes than a word has bits."""


def chain(layers: int) -> str:
    """Products and softmaxes in turn."""
    steps = [f"a{k} = MatMul(s{k}, w) s{k + 1} = Softmax(a{k})" for k in range(layers)]
    return f"""
<ir_version: 8, opset_import: ["" : 17]>
net (float[5, 24] s0) => (float[5, 24] s{layers})
<float[24, 24] w = {{{", ".join(f"{k % 7 - 3}.25" for k in range(576))}}}> {{
    {" ".join(steps)}
}}
"""


def branches(count: int) -> str:
    """Products of different sizes, which do not depend on each other, and their joint use."""
    given = zip(*branch_shapes(count), strict=True)
    inputs = ", ".join(f"float[{m}, {k}] x{n}, float[{k}, {o}] w{n}"
                       for n, ((m, k), (_, o)) in enumerate(given))
    outputs = ", ".join(f"float[{m}, 256] z{n}" for n, (m, _) in enumerate(branch_shapes(count)[0]))
    steps = [f"y{n} = MatMul(x{n}, w{n}) m{n} = ReduceMax<keepdims=1, axes=[0]>(y{n}) "
             f"t{n} = Add(m{n}, {f't{n - 1}' if n else 'm0'})" for n in range(count)]
    ends = [f"z{n} = Mul(y{n}, t{count - 1})" for n in range(count)]
    return f"""
<ir_version: 8, opset_import: ["" : 13]>
net ({inputs}) => ({outputs}) {{ {" ".join([*steps, *ends])} }}
"""


def branch_shapes(count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return ([(64 * (n + 2), 96 * (n + 1)) for n in range(count)],
            [(96 * (n + 1), 256) for n in range(count)])


MODELS = {"net": (NET, [(16, 24)]), "open": (NET, [(5, 24)]), "copies": (COPIES, [(3, 5)]),
          "chain": (chain(LAYERS), [(5, 24)]),
          "branches": (branches(6), [s for pair in zip(*branch_shapes(6), strict=True)
                                     for s in pair])}


def edges(parts: Any, sizes: dict[Symbol, int], early: bool) -> list[tuple[list[int], list[int]]]:
    """For each node the earlier ones that must end, and those beside which it may start."""
    steps = [s for s in parts.plan.steps if isinstance(s, Copy) or s.happens(sizes)]
    waits = waits_of([accesses_of(s, sizes) for s in steps],
                     machine_of("sm_90").fitted.graph_lanes)

    def overlaps(node: int, earlier: int) -> bool:
        step = steps[node]
        if not early or isinstance(step, Copy) or isinstance(steps[earlier], Copy):
            return False
        return next(c.source.waits for v, c in parts.code.variants.items()
                    if v[0] is step.kernel)

    return [([k + 1 for k in w if not overlaps(n, k)], [k + 1 for k in w if overlaps(n, k)])
            for n, w in enumerate(waits)]


def asked(gpu: FakeGpu) -> list[tuple[list[int], list[int]]]:
    """The edges that a library asked for."""
    found: list[tuple[list[int], list[int]]] = []
    for kind, *words in gpu.lines:
        if kind == "node":
            assert int(words[0]) == len(found) + 1
            found.append((list(map(int, words[1:])), []))
        elif kind == "early":
            assert int(words[0]) == len(found)
            found[-1][1].append(int(words[1]))
    return found


@pytest.mark.parametrize("flags", [(), ("-DOLD",)], ids=["new", "old"])
@pytest.mark.parametrize("name", MODELS)
def test_the_graph_has_the_edges_of_the_process(
    name: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    text, shapes = MODELS[name]
    gpu, parts = FakeGpu(tmp_path, *flags), parts_of(text)
    status, said = gpu.run(written(text, tmp_path, "sm_90"), [numbers(*s) for s in shapes], {})
    assert status == 0, said
    symbols = {s for step in parts.plan.steps if not isinstance(step, Copy) for s in step.symbols}
    wanted = edges(parts, dict.fromkeys(symbols, shapes[0][0]), early=not flags)
    assert asked(gpu) == wanted
    if name == "chain":
        assert len(wanted) > 64 and any(e for _, e in wanted) == (not flags)
    if name == "branches":
        assert sum(not any(both) for both in wanted) > 1  # some begin at once
