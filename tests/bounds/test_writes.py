"""Every element of a tensor is written before it is read: the proof, on IR that leaves some out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.loop import Axis, NestOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.inequalities import Prover
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from passes.analyses.loop.coverage import Cover, box_of
from passes.base import StrataContext
from passes.loop.prove_writes import LoopProveWrites
from targets.base import TargetOptions, find_target
from tests.lowering import STEPS, lower
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES


def function(result: str, *lines: str, name: str = "y", assumed: str = "") -> str:
    """A function that stores parts of `%x: f32[n]` in a tensor and returns it."""
    return f"""
    strata.func @main(%x: f32[n], %z: f32[m]) -> ({result}) inputs ["x", "z"] outputs ["y"] {{
      {assumed}
      {" ".join(lines)}
      strata.return %{name}
    }}"""


def nest(name: str, axes: str, read: str, store: str, into: str = "") -> str:
    kept = f" into(%{into})" if into else ""
    return f"""
      %{name} = loop.nest ({axes}) ins({read}) outs({store}){kept} {{
      ^bb0(%p{name}: f32):
        loop.yield %p{name}
      }}"""


def proven(text: str) -> tuple[ModuleOp, list[str]]:
    """The module as the pass leaves it, and its remarks; a second run must change nothing."""
    context = StrataContext.with_dialects()
    module = Parser(context, f"builtin.module {{{text}}}").parse_module()
    verify(module)
    LoopProveWrites().apply(context, module)
    verify(module)
    once = str(module)
    assert str(Parser(context, once).parse_module()) == once
    again = StrataContext.with_dialects()
    LoopProveWrites().apply(again, module)
    assert str(module) == once
    assert [r.text for r in again.remarks] == [
        r.text for r in context.remarks if r.text.startswith("not proven")]
    return module, [r.text for r in context.remarks]


ROW = nest("y", "i0: n", "%x[i0]", "f32[n + 1][i0]")
EMPTY = "%e = loop.empty : f32[n + m]"
CONCAT = [EMPTY, nest("a", "i0: n", "%x[i0]", "f32[n + m][i0]", "e"),
          nest("y", "i0: m", "%z[i0]", "f32[n + m][i0 + n]", "a")]
GAP = [EMPTY, nest("a", "i0: n - 1", "%x[i0]", "f32[n + m][i0]", "e"), CONCAT[2]]
PHASES = ["%e = loop.empty : f32[3*n + 1]",
          nest("a", "i0: n + 1", "%x[i0] pad 0.0", "f32[3*n + 1][3*i0]", "e"),
          nest("b", "i0: n", "%x[i0]", "f32[3*n + 1][3*i0 + 1]", "a"),
          nest("y", "i0: n", "%x[i0]", "f32[3*n + 1][3*i0 + 2]", "b")]
SHORT = [PHASES[0], nest("a", "i0: n", "%x[i0]", "f32[3*n + 1][3*i0]", "e"), *PHASES[2:]]


@pytest.mark.parametrize(("text", "type_"), [
    (function("f32[n + 1]", ROW), "f32[n + 1]"),
    (function("f32[n + m]", *GAP, assumed="strata.assume 1 <= n"), "f32[m + n]"),
    (function("f32[n + m]", *CONCAT[:2], name="a"), "f32[m + n]"),
    (function("f32[n + m]", CONCAT[0], CONCAT[2].replace("%a", "%e")), "f32[m + n]"),
    (function("f32[3*n + 1]", *PHASES[:3], name="b"), "f32[3*n + 1]"),
    (function("f32[3*n + 1]", *SHORT), "f32[3*n + 1]"),
    (function("f32[n]", "%y = loop.empty : f32[n]"), "f32[n]"),
    (function("f32[n, n]", nest("y", "i0: n", "%x[i0]", "f32[n, n][i0, i0]")), "f32[n, n]"),
    (function("f32[3]", nest("y", "i0: n, i1: 3", "%x[i0]", "f32[3][i1]")), "f32[3]"),
], ids=["row", "gap", "no end", "no start", "phase", "short phase", "nothing", "diagonal", "idle"])
def test_what_is_left_out_is_filled_with_zeros(text: str, type_: str) -> None:
    module, remarks = proven(text)
    assert remarks == [f"filled with zeros: that nests write all of {type_}, "
                       "which strata.return reads"]
    zeros = next(op for op in module.walk() if isinstance(op, NestOp))
    assert not zeros.inputs and [r.type.short for r in zeros.results] == [type_]


@pytest.mark.parametrize("text", [
    function("f32[n + m]", *CONCAT),
    function("f32[3*n + 1]", *PHASES),
    function("f32[n + m]", CONCAT[0], CONCAT[1], nest(
        "y", "i0: m + 1", "%z[i0] pad 0.0", "f32[n + m][i0 + n - 1]", "a"),
        assumed="strata.assume 1 <= n"),
    function("f32[n]", nest("y", "i0: n", "%x[i0]", "f32[n][n - 1 - i0]")),
    function("f32[n, 6]", nest(
        "y", "i0: 2*n, i1: 3", "%x[0]", "f32[n, 6][i0 floordiv 2, 3*(i0 mod 2) + i1]")),
    function("f32[n, m]", nest("y", "i0: n*m", "%x[0]", "f32[n, m][i0 floordiv m, i0 mod m]")),
    function("f32[n]", nest("a", "i0: n", "%x[i0]", "f32[n][i0]"),
             nest("y", "i0: m", "%z[i0]", "f32[n][i0 + 1]", "a")),
], ids=["concat", "phases", "overlap", "reversed", "digits", "collapsed", "over"])
def test_what_is_covered_is_left_alone(text: str) -> None:
    assert proven(text)[1] == []


def test_a_tensor_is_whole_where_it_is_read_not_only_in_the_end() -> None:
    early = nest("b", "i0: n", "%a[i0]", "f32[n][i0]")
    text = function("f32[n + m]", *CONCAT[:2], early, CONCAT[2])
    assert proven(text)[1] == [
        "filled with zeros: that nests write all of f32[m + n], which loop.nest reads"]


@pytest.mark.parametrize(("size", "found"), [("n", []), ("n + 1", [
    "not proven: that nests write all of f32[n + 1], which strata.return reads"])])
def test_kernels_write_what_their_callers_read(size: str, found: list[str]) -> None:
    text = f"""
    strata.func @main(%x: f32[n]) -> (f32[{size}]) inputs ["x"] outputs ["y"] {{
      %e = loop.empty : f32[{size}]
      %y = loop.call @k(%x, %e) sizes(n, {size}) : f32[{size}]
      strata.return %y
    }}
    loop.kernel @k(%x: f32[k], %e: f32[s]) -> (f32[s]) sizes(k, s) {{
      {nest("y", "i0: k", "%x[i0]", "f32[s][i0]", "e")}
      loop.yield %y
    }}"""
    assert proven(text)[1] == found


# ---------------------------------------------------------------------- against counting
def stores(source: Random, rank: int) -> tuple[list[Axis], list[Expr]]:
    """The axes and indices of a nest that stores somewhere."""
    axes, map_ = list[Axis](), list[Expr]()
    for _ in range(rank):
        name = Symbol.axis(f"i{len(axes)}")
        extent = source.choice([Expr.of(source.randint(0, 3)), Expr.size("n"), Expr.size("n") + 1])
        kind, first = source.randint(0, 5), source.choice([Expr.of(0), Expr.of(1), Expr.size("n")])
        place = Expr.symbol(name)
        if kind == 0:
            map_.append(first)
            continue
        axes.append(Axis(name, extent))
        if kind == 1:
            inner = Symbol.axis(f"i{len(axes)}")
            axes.append(Axis(inner, Expr.of(2)))
            place = place * 2 + Expr.symbol(inner)
        map_.append({2: place * 2, 3: place * 2 + 1, 4: extent - 1 - place}.get(
            kind, place + first))
    return axes, map_


def reached(axes: Sequence[Axis], map_: Sequence[Expr], n: int) -> Iterator[tuple[int, ...]]:
    sizes = {Symbol.size("n"): n}
    extents = [int(a.extent.evaluate(sizes)) for a in axes]
    for point in product(*map(range, extents)):
        values = {**sizes, **{a.name: i for a, i in zip(axes, point, strict=True)}}
        yield tuple(int(e.evaluate(values)) for e in map_)


def test_what_is_proven_to_be_covered_is_covered() -> None:
    """Random stores, counted for sizes from 0 on: a proof is right, and there are many."""
    source, proofs = Random(7), 0
    n = Expr.size("n")
    for _ in range(1500):
        rank = source.randint(1, 2)
        nests = [stores(source, rank) for _ in range(source.randint(1, 4))]
        shape = [source.choice([Expr.of(2), n, n + 1, n * 2, n * 2 + 1]) for _ in range(rank)]
        boxes = [box for a, m in nests if (box := box_of(a, m)) is not None]
        if not Cover(Prover({})).holds(boxes, shape):
            continue
        proofs += 1
        for size in range(5):
            places = {p for a, m in nests for p in reached(a, m, size)}
            wanted = product(*(range(int(e.evaluate({Symbol.size("n"): size}))) for e in shape))
            assert {*wanted} <= places, (nests, shape, size)
    assert proofs > 80


# ---------------------------------------------------------------------- what lowering makes
def remarked(samples: Sequence[Sample], target: str) -> set[str]:
    """The operations of whose samples something is not proven, in functions or in kernels."""
    found: set[str] = set()
    for sample in samples:
        module, _, context = build_module(sample, bool(sample.dims))
        strata = find_target(target).bind(TargetOptions(features="avx2")
            if target == "cpu" else TargetOptions()).context(context.weights)
        list(lower(module, strata, STEPS[:STEPS.index("host-bufferize")]))
        found |= {sample.op.name for r in strata.remarks if r.pass_name == LoopProveWrites.name}
    return found


PARTIAL = ("graph.concat", "graph.conv", "graph.conv_transpose", "graph.lstm", "graph.top_k")
"""Operations whose results nests write part by part, or at the digits of one axis."""


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_lowering_writes_all_that_it_reads(target: str) -> None:
    of = {name: [s for s in SAMPLES if s.op.name == name and s.dims] for name in PARTIAL}
    assert not remarked([s for name in PARTIAL for s in of[name][::3]], target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_all_samples_write_all_that_they_read(target: str) -> None:
    assert not remarked([*SAMPLES, *PIPELINE_SAMPLES], target)
