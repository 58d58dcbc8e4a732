"""Nests, evaluated for blocks of their domain at once, against the definition point by point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from dialects.context import make_context
from dialects.loop import KernelOp, NestOp, interpret, scalar_type
from dialects.loop.interpret import evaluate_kernel
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.scalar import evaluate_body
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from tests.symbols import by_symbol

COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
           "and": np.bitwise_and, "or": np.bitwise_or}

BODIES = {
    "copy": "{ ^bb0(%p: f32): loop.yield %p }",
    "mul": "{ ^bb0(%p: f32, %q: f32): %r = arith.mulf %p, %q : f32 loop.yield %r }",
    "sub": "{ ^bb0(%p: f32, %q: f32): %r = arith.subf %p, %q : f32 loop.yield %r }",
    "last": "{ ^bb0(%p: i64, %q: f32): loop.yield %q }",
    "wide": """{ ^bb0(%p: f16, %q: f16): %a = arith.extf %p : f16 to f32
        %b = arith.extf %q : f16 to f32 %r = arith.mulf %a, %b : f32 loop.yield %r }""",
    "int": "{ ^bb0(%p: i32, %q: i32): %r = arith.muli %p, %q : i32 loop.yield %r }",
    "widened": """{ ^bb0(%p: i8, %q: i8): %a = arith.extsi %p : i8 to i32
        %b = arith.extsi %q : i8 to i32 %r = arith.muli %a, %b : i32 loop.yield %r }""",
    "ui8": "{ ^bb0(%p: i8): %r = arith.extui %p : i8 to i32 loop.yield %r }",
    "byte": "{ ^bb0(%p: i8): loop.yield %p }",
    "i1": "{ ^bb0(%p: i1): loop.yield %p }",
    "i32": "{ ^bb0(%p: i32): loop.yield %p }",
    "half": "{ ^bb0(%p: bf16): loop.yield %p }",
    "index": """{ %i = loop.index 2*i0 - i1 + n : index %r = arith.index_cast %i : index to i64
        loop.yield %r }""",
    "relu": """{ ^bb0(%p: f32, %q: f32): %z = arith.constant 0.0 : f32
        %a = arith.maximumf %p, %z : f32 %r = arith.mulf %a, %q : f32 loop.yield %r }""",
    "three": """{ ^bb0(%p: f32, %q: f32, %s: f32): %a = arith.subf %p, %q : f32
        %r = arith.mulf %a, %s : f32 loop.yield %r }""",
    "triangle": """{ ^bb0(%p: f32, %q: f32): %i = loop.index i0 - i2 : index
        %k = arith.index_cast %i : index to i64 %f = arith.sitofp %k : i64 to f32
        %a = arith.addf %p, %f : f32 %r = arith.mulf %a, %q : f32 loop.yield %r }""",
    "double": """{ ^bb0(%p: f32): %z = arith.constant 2.0 : f32
        %r = arith.mulf %p, %z : f32 loop.yield %r }""",
    "picked": """{ ^bb0(%p: i64, %q: f32, %s: f32): %r = arith.mulf %q, %s : f32
        loop.yield %r }""",
    "follower": "{ ^bb0(%p: i64, %q: i64): loop.yield %q }",
    "constant": "{ %r = arith.constant 2.5 : f32 loop.yield %r }",
    "two": """{ ^bb0(%p: f32): %r = arith.negf %p : f32 loop.yield %p, %r }""",
}

CASES: dict[str, tuple[str, str, str]] = {
    # arguments; the nest up to its body; the body
    "elementwise": ("%x: f32[n, 5], %y: f32[5]",
                    "(i0: n, i1: 5) ins(%x[i0, i1], %y[i1]) outs(f32[n, 5][i0, i1])", "sub"),
    "rank 0": ("%x: f32[]", "() ins(%x[]) outs(f32[][])", "copy"),
    "transposed": ("%x: f32[n, 5]", "(i0: 5, i1: n) ins(%x[i1, i0]) outs(f32[5, n][i0, i1])",
                   "copy"),
    "backwards": ("%x: f32[n]", "(i0: n) ins(%x[n - 1 - i0]) outs(f32[n][i0])", "copy"),
    "strided": ("%x: f32[2*n]", "(i0: n) ins(%x[2*i0 + 1]) outs(f32[n][i0])", "copy"),
    "diagonal": ("%x: f32[n, n]", "(i0: n) ins(%x[i0, i0]) outs(f32[n][i0])", "copy"),
    "symbolic stride": ("%x: f32[n*m]", "(i0: n, i1: m) ins(%x[m*i0 + i1]) "
                        "outs(f32[n, m][i0, i1])", "copy"),
    "unused axis": ("%x: f32[n]", "(i0: n, i1: m) ins(%x[i0]) outs(f32[n, m][i0, i1])", "copy"),
    "no input": ("%x: f32[n]", "(i0: n, i1: 3) ins() outs(f32[n, 3][i0, i1])", "constant"),
    "index": ("%x: f32[n]", "(i0: n, i1: 3) ins() outs(i64[n, 3][i0, i1])", "index"),
    "collapsed": ("%x: f32[n, 6]", "(i0: 6*n) ins(%x[i0 floordiv 6, i0 mod 6]) "
                  "outs(f32[6*n][i0])", "copy"),
    "collapsed result": ("%x: f32[6*n]", "(i0: 6*n) ins(%x[i0]) "
                         "outs(f32[n, 6][i0 floordiv 6, i0 mod 6])", "copy"),
    "clamped": ("%x: f32[n]", "(i0: n + 4) ins(%x[min(max(i0 - 2, 0), n - 1)]) "
                "outs(f32[n + 4][i0])", "copy"),
    "padded": ("%x: f32[n, 5]", "(i0: n + 3, i1: 9) ins(%x[i0 - 1, 2*i1 - 3] pad -1.0) "
               "outs(f32[n + 3, 9][i0, i1])", "copy"),
    "padded gather": ("%i: i64[n], %x: f32[n, 5]", "(i0: n, i1: 7) "
                      "ins(%i[i0], %x[in0 - 1, i1 - 1] pad 3.0) outs(f32[n, 7][i0, i1])", "last"),
    "all pad": ("%x: f32[0]", "(i0: n) ins(%x[i0 mod 2] pad 3.0) outs(f32[n][i0])", "copy"),
    "gather": ("%i: i64[n, 2], %x: f32[3, 5]", "(i0: n, i1: 2, i2: 5) "
               "ins(%i[i0, i1], %x[in0, i2]) outs(f32[n, 2, 5][i0, i1, i2])", "last"),
    "spread result": ("%x: f32[n, 2]", "(i0: n, i1: 2) ins(%x[i0, i1]) "
                      "outs(f32[2*n][2*i0 + i1])", "copy"),
    "into": ("%x: f32[n], %d: f32[3*n, 2]", "(i0: n) ins(%x[i0]) "
             "outs(f32[3*n, 2][3*i0 + 1, 1]) into(%d)", "copy"),
    "two results": ("%x: f32[n, 5]", "(i0: n, i1: 5) ins(%x[i0, i1]) "
                    "outs(f32[n, 5][i0, i1], f32[5, n][i1, i0])", "two"),
    "sum": ("%x: f32[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) outs(add f32[n][i0])", "copy"),
    "sum of all": ("%x: f32[n, 5]", "(reduce i0: n, reduce i1: 5) ins(%x[i0, i1]) "
                   "outs(add f32[][])", "copy"),
    "sum of differences": ("%x: f32[n, 5], %y: f32[5]", "(i0: n, reduce i1: 5) "
                           "ins(%x[i0, i1], %y[i1]) outs(add f32[n][i0])", "sub"),
    "sum into": ("%x: f32[n, 5], %d: f32[2*n]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) "
                 "outs(add f32[2*n][2*i0]) into(%d)", "copy"),
    "sum and product": ("%x: f32[n, 3]", "(i0: n, reduce i1: 3) ins(%x[i0, i1]) "
                        "outs(add f32[n][i0], mul f32[n][i0])", "two"),
    "maximum": ("%x: f32[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) outs(max f32[n][i0])",
                "copy"),
    "minimum": ("%x: i32[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) outs(min i32[n][i0])",
                "i32"),
    "bits": ("%x: i32[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) outs(and i32[n][i0])",
             "i32"),
    "any": ("%x: i1[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) outs(or i1[n][i0])", "i1"),
    "all": ("%x: i1[n, 2]", "(i0: n, reduce i1: 2) ins(%x[i0, i1]) outs(and i1[n][i0])", "i1"),
    "bf16 sum": ("%x: bf16[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) outs(add bf16[n][i0])",
                 "half"),
    "unsigned": ("%x: ui8[n]", "(i0: n) ins(%x[i0]) outs(i32[n][i0])", "ui8"),
    "unsigned result": ("%x: i8[n]", "(i0: n) ins(%x[i0]) outs(ui8[n][i0])", "byte"),
    "matmul": ("%x: f32[2, n, 4], %y: f32[4, m]", "(i0: 2, i1: n, i2: m, reduce i3: 4) "
               "ins(%x[i0, i1, i3], %y[i3, i2]) outs(add f32[2, n, m][i0, i1, i2])", "mul"),
    "batched matmul": ("%x: f32[2, n, 4], %y: f32[2, 4, m]", "(i0: 2, i1: n, i2: m, reduce i3: 4) "
                       "ins(%x[i0, i1, i3], %y[i0, i3, i2]) outs(add f32[n, 2, m][i1, i0, i2])",
                       "mul"),
    "outer product": ("%x: f32[n, 3], %y: f32[m]", "(i0: m, i1: n, reduce i2: 3, reduce i3: 2) "
                      "ins(%x[i1, i2], %y[i0]) outs(add f32[m, n][i0, i1])", "mul"),
    "half matmul": ("%x: f16[n, 4], %y: f16[4, m]", "(i0: n, i1: m, reduce i2: 4) "
                    "ins(%x[i0, i2], %y[i2, i1]) outs(add f32[n, m][i0, i1])", "wide"),
    "integer matmul": ("%x: i32[n, 4], %y: i32[4]", "(i0: n, reduce i1: 4) "
                       "ins(%x[i0, i1], %y[i1]) outs(add i32[n][i0])", "int"),
    "byte matmul": ("%x: ui8[n, 4], %y: i8[4]", "(i0: n, reduce i1: 4) "
                    "ins(%x[i0, i1], %y[i1]) outs(add i32[n][i0])", "widened"),
    "squares": ("%x: f32[n, 4]", "(i0: n, reduce i1: 4) ins(%x[i0, i1], %x[i0, i1]) "
                "outs(add f32[n][i0])", "mul"),
    "convolution": ("%x: f32[2, 3, n, 7], %w: f32[4, 3, 3, 2]",
                    "(i0: 2, i1: 4, i2: (n - 1) floordiv 2 + 1, i3: 6, reduce i4: 3, "
                    "reduce i5: 3, reduce i6: 2) "
                    "ins(%x[i0, i4, 2*i2 + i5 - 1, i3 + i6] pad 0.0, %w[i1, i4, i5, i6]) "
                    "outs(add f32[2, 4, (n - 1) floordiv 2 + 1, 6][i0, i1, i2, i3])", "mul"),
    "depthwise": ("%x: f32[2, 3, n], %w: f32[3, 1, 3]", "(i0: 2, i1: 3, i2: n, reduce i3: 3) "
                  "ins(%x[i0, i1, i2 + i3 - 1] pad 0.0, %w[i1, 0, i3]) "
                  "outs(add f32[2, 3, n][i0, i1, i2])", "mul"),
    "convolution, collapsed": (
        "%x: f32[2, 3, n, 7], %w: f32[4, 27]",
        "(i0: 2, i1: 4, i2: 5*n, reduce i3: 27) "
        "ins(%x[i0, i3 floordiv 9, i2 floordiv 5 + i3 mod 9 floordiv 3 - 1, i2 mod 5 + i3 mod 3] "
        "pad 0.0, %w[i1, i3]) outs(add f32[2, 4, n, 5][i0, i1, i2 floordiv 5, i2 mod 5])", "mul"),
    "matmul of relu": ("%x: f32[n, 4], %y: f32[4, m]", "(i0: n, i1: m, reduce i2: 4) "
                       "ins(%x[i0, i2], %y[i2, i1]) outs(add f32[n, m][i0, i1])", "relu"),
    "matmul of difference": ("%x: f32[n, 4], %z: f32[n], %y: f32[4, m]",
                             "(i0: n, i1: m, reduce i2: 4) ins(%x[i0, i2], %z[i0], %y[i2, i1]) "
                             "outs(add f32[n, m][i0, i1])", "three"),
    "matmul with index": ("%x: f32[4], %y: f32[4, m]", "(i0: n, i1: m, reduce i2: 4) "
                          "ins(%x[i2], %y[i2, i1]) outs(add f32[n, m][i0, i1])", "triangle"),
    "matmul of gathered": ("%i: i64[n], %x: f32[3, 4], %y: f32[4, m]",
                           "(i0: n, i1: m, reduce i2: 4) ins(%i[i0], %x[in0, i2], %y[i2, i1]) "
                           "outs(add f32[n, m][i0, i1])", "picked"),
    "sum of doubles": ("%x: f32[n, 5]", "(i0: n, reduce i1: 5) ins(%x[i0, i1]) "
                       "outs(add f32[n][i0])", "double"),
    "scatter": ("%i: i64[n, m], %x: f32[m, n], %d: f32[3, n]", "(reduce i0: m, i1: n) "
                "ins(%i[i1, i0], %x[i0, i1]) outs(f32[3, n][in0, i1]) into(%d)", "last"),
    "scatter of a permutation": (
        "%i: i64[1], %x: f32[n, m], %d: f32[3, m + 1]", "(i1: m) ins(%i[0], %x[0, i1]) "
        "outs(f32[3, m + 1][in0, (i1 + 1) mod (m + 1)]) into(%d)", "last"),
    "scattered sum": ("%i: i64[n, m], %x: f32[n, m], %d: f32[5]", "(reduce i0: n, reduce i1: m) "
                      "ins(%i[i0, i1], %x[i0, i1]) outs(add f32[5][2*in0]) into(%d)", "last"),
    "one scattered product": ("%i: i64[n], %x: f32[n, m], %d: f32[3, m]", "(i0: m) "
                              "ins(%i[1], %x[2, i0]) outs(mul f32[3, m][in0, i0]) into(%d)",
                              "last"),
    "recurrence": ("%s: f32[n], %x: f32[n, m]", "(i0: n, reduce i1: m) ins(%s[i0], %x[i0, i1]) "
                   "outs(next f32[n][i0])", "sub"),
    "recurrence of one state": ("%s: f32[], %x: f32[m, n]", "(reduce i0: m, i1: n, i2: 2) "
                                "ins(%s[], %x[i0, i1]) outs(next f32[2, n][i2, i1])", "sub"),
    "recurrence that reads its first state": (
        "%s: f32[n]", "(i0: n, reduce i1: m) ins(%s[i0], %s[i0]) outs(next f32[n][i0])", "sub"),
    "descent": ("%s: i64[m], %f: i64[3, n]", "(i0: n, reduce i1: 5, i2: m) "
                "ins(%s[i2], %f[in0, (i0 + i1) mod n]) outs(next i64[n, m][i0, i2])", "follower"),
    "product of gathered": ("%x: f32[n, 2], %y: f32[3]", "(i0: n, reduce i1: 2) "
                            "ins(%x[i0, i1], %y[i0 mod 3]) outs(add f32[n][i0])", "mul"),
}


def make_kernel(arguments: str, head: str, body: str) -> KernelOp:
    """A kernel of one nest, over the sizes n and m."""
    values = "%r0, %r1" if body == "two" else "%r0"
    text = (f"loop.kernel @k({arguments}) -> () sizes(n, m) "
            f"{{ {values} = loop.nest {head} {BODIES[body]} loop.yield {values} }}")
    module = Parser(make_context(), f"builtin.module {{ {text} }}").parse_module()
    verify(module)
    kernel = module.body.block.first_op
    assert isinstance(kernel, KernelOp)
    return kernel


def make_inputs(kernel: KernelOp, context: EvaluationContext) -> list[Array]:
    rng = np.random.default_rng(7)
    return [make_array(rng, a.type, context) for a in kernel.body.block.args]


def make_array(rng: np.random.Generator, type_: Any, context: EvaluationContext) -> Array:
    shape = context.shape(type_)
    if type_.element == t.i64:  # indices
        return rng.integers(0, 3, shape)
    if type_.dtype.kind in "iub":
        return rng.integers(0, 120, shape).astype(type_.dtype)
    return rng.integers(-8, 9, shape).astype(type_.dtype)  # sums of such are exact


# ---------------------------------------------------------------------- the definition
def by_points(nest: NestOp, context: EvaluationContext, operands: Sequence[Array]) -> list[Array]:
    """One point after the other, as the operation's specification says."""
    inputs, into = operands[:len(nest.inputs)], operands[len(nest.inputs):]
    results = [np.zeros(context.shape(r.type), r.type.dtype) for r in nest.results]
    written: list[set[tuple[int, ...]]] = [set() for _ in results]
    for rest in into:
        results[0][...] = rest
    extents = [a.extent.evaluate(context.sizes) for a in nest.axes]
    for point in itertools.product(*map(range, extents)):
        known: dict[Symbol, Any] = dict(zip([a.name for a in nest.axes], point, strict=True))
        known.update(context.sizes)
        if nest.is_recurrence:
            place = tuple(e.evaluate(known) for e in nest.output_maps[0])
            state = results[0][place] if place in written[0] else None
            results[0][place] = point_values(nest, known, inputs, state)[0]
            written[0].add(place)
            continue
        values = point_values(nest, known, inputs)
        for k, value in enumerate(values):
            place = tuple(e.evaluate(known) for e in nest.output_maps[k])
            value = value.view(results[k].dtype)
            kind = nest.combiner_names[k]
            assert nest.is_scatter or kind != "none" or place not in written[k]
            if kind != "none" and (nest.is_scatter or place in written[k]):
                value = COMBINE[kind](results[k][place], value)
            results[k][place] = value
            written[k].add(place)
    return results


def point_values(
    nest: NestOp, known: dict[Symbol, Any], inputs: Sequence[Array], state: Any = None
) -> list[Array]:
    arguments: list[Array] = []
    rows = zip(nest.inputs, nest.input_maps, nest.pad_values, inputs, strict=True)
    for k, (operand, map_, pad, array) in enumerate(rows):
        place = tuple(e.evaluate(known) for e in map_)
        inside = all(0 <= i < size for i, size in zip(place, array.shape, strict=True))
        assert inside or pad is not None
        value = np.asarray(array[place] if inside else array.dtype.type(pad))
        if k == 0 and state is not None:
            value = np.asarray(state)
        known[Symbol.gathered(k)] = int(value) if array.dtype.kind in "iu" else None
        arguments.append(value.view(t.dtype_of(scalar_type(operand))))
    return evaluate_body(nest.body.block, arguments,
                         lambda op: [np.asarray(op.expr.data.evaluate(known))])


@pytest.mark.parametrize("block_bytes", [1 << 24, 16], ids=["one block", "small blocks"])
@pytest.mark.parametrize("case", CASES)
def test_nest_is_its_definition(case: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interpret, "BLOCK_BYTES", block_bytes)
    kernel = make_kernel(*CASES[case])
    context = EvaluationContext(by_symbol({"n": 4, "m": 3}))
    inputs = make_inputs(kernel, context)
    actual = evaluate_kernel(kernel, context, *inputs)
    arrays = dict(zip(kernel.body.block.args, inputs, strict=True))
    [nest] = kernel.nests
    expected = by_points(nest, context, [arrays[o] for o in nest.operands])
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape, a.flags.c_contiguous) == (e.dtype, e.shape, True)
        np.testing.assert_array_equal(a, e)


# ---------------------------------------------------------------------- edges
def evaluate(arguments: str, head: str, body: str, *inputs: Array, **sizes: int) -> Array:
    context = EvaluationContext(by_symbol({"n": 4, "m": 3, **sizes}))
    return evaluate_kernel(make_kernel(arguments, head, body), context, *inputs)[0]


@pytest.mark.parametrize("kind, expected", [
    ("add", 0), ("mul", 1), ("max", -np.inf), ("min", np.inf)])
def test_a_reduction_of_nothing_gives_the_identity(kind: str, expected: float):
    head = f"(i0: 2, reduce i1: n) ins(%x[i0, i1]) outs({kind} f32[2][i0])"
    result = evaluate("%x: f32[2, n]", head, "copy", np.zeros((2, 0), np.float32), n=0)
    np.testing.assert_array_equal(result, np.full(2, expected, np.float32))


@pytest.mark.parametrize("kind, expected", [("and", -1), ("or", 0), ("max", -2**31)])
def test_a_reduction_of_no_integers_gives_the_identity(kind: str, expected: int):
    head = f"(i0: 2, reduce i1: n) ins(%x[i0, i1]) outs({kind} i32[2][i0])"
    result = evaluate("%x: i32[2, n]", head, "i32", np.zeros((2, 0), np.int32), n=0)
    np.testing.assert_array_equal(result, np.full(2, expected, np.int32))


@pytest.mark.parametrize("read", ["%s[i0]", "%s[i0 mod (n + 4)]"])
def test_a_recurrence_of_no_points_gives_its_first_state(read: str):
    head = f"(i0: 4, reduce i1: n) ins({read}, %x[i1]) outs(next f32[4][i0])"
    first = np.float32([3, 1, 4, 1])
    result = evaluate("%s: f32[4], %x: f32[n]", head, "sub", first, np.zeros(0, np.float32), n=0)
    np.testing.assert_array_equal(result, first)


def test_an_empty_domain_writes_nothing():
    head = "(i0: n) ins(%x[i0]) outs(f32[3*n + 2, 2][3*i0 + 1, 1]) into(%d)"
    kept = np.ones((2, 2), np.float32)
    result = evaluate("%x: f32[n], %d: f32[3*n + 2, 2]", head, "copy",
                      np.zeros(0, np.float32), kept, n=0)
    np.testing.assert_array_equal(result, kept)


def test_the_operand_of_into_stays_as_it_is():
    kept = np.ones(4, np.float32)
    evaluate("%x: f32[n], %d: f32[n]", "(i0: n) ins(%x[i0]) outs(f32[n][i0]) into(%d)", "copy",
             np.zeros(4, np.float32), kept)
    assert kept.all()


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_propagate_nan(kind: str):
    head = f"(i0: n, reduce i1: 2) ins(%x[i0, i1]) outs({kind} f32[n][i0])"
    x = np.array([[1, np.nan], [np.nan, 1], [1, 2], [np.inf, -np.inf]], np.float32)
    assert np.isnan(evaluate("%x: f32[n, 2]", head, "copy", x)).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("index", ["i0 + n - 3", "2 - i0", "(i0 + n) mod 7"])
def test_a_read_outside_without_pad_is_an_error(index: str):
    with pytest.raises(IndexError, match=r"loop.nest reads elements"):
        evaluate("%x: f32[n]", f"(i0: m + 1) ins(%x[{index}]) outs(f32[m + 1][i0])", "copy",
                 np.zeros(4, np.float32))


@pytest.mark.parametrize("index", ["i0 + n - 2", "(i0 + n) mod 6"])
def test_a_write_outside_is_an_error(index: str):
    with pytest.raises(IndexError, match=r"loop.nest writes elements"):
        evaluate("%x: f32[n]", f"(i0: m) ins(%x[i0]) outs(f32[n][{index}])", "copy",
                 np.zeros(4, np.float32))


@pytest.mark.parametrize("places, missing", [([2, 0, 1], 0), ([2, 0, 2], 1), ([0, 0, 0], 2)])
def test_a_total_scatter_writes_everything(places: list[int], missing: int):
    def run() -> Array:
        return evaluate("%x: f32[n], %i: i64[n], %d: f32[n]",
                        "(i0: n) ins(%i[i0], %x[i0]) outs(f32[n][in0]) into(%d) total", "last",
                        np.float32([1, 2, 3]), np.array(places), np.zeros(3, np.float32), n=3)

    if not missing:
        return np.testing.assert_array_equal(run(), np.float32([2, 3, 1]))
    with pytest.raises(IndexError, match=f"leaves {missing} of 3 elements unwritten"):
        run()


def test_a_scatter_outside_is_an_error():
    with pytest.raises(IndexError, match=r"loop.nest writes elements 1 to 3, by in0"):
        evaluate("%i: i64[n], %x: f32[n], %d: f32[m]",
                 "(reduce i0: n) ins(%i[i0], %x[i0]) outs(f32[m][in0]) into(%d)", "last",
                 np.array([1, 2, 3, 1]), np.zeros(4, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize("head, message", [
    ("(i0: n) ins(%i[i0], %x[i0]) outs(f32[m][in0])", "C7"),
    ("(i0: n) ins(%i[i0], %x[i0]) outs(f32[m][in1]) into(%d)", "C6"),
    ("(i0: n) ins(%i[i0], %x[i0]) outs(f32[m][in2]) into(%d)", "C6"),
    ("(reduce i0: n) ins(%i[i0], %x[i0]) outs(f32[m][i0 + in0]) into(%d)", "C2"),
])
def test_what_is_no_scatter(head: str, message: str):
    with pytest.raises(VerifyException, match=message):
        make_kernel("%i: i64[n], %x: f32[n], %d: f32[m]", head, "last")


def test_a_kernel_runs_nests_views_and_empties():
    text = """builtin.module {
      loop.kernel @k(%x: f32[n, 2]) -> () sizes(n) {
        %e = loop.empty : f32[2*n]
        %v = loop.view %x : f32[2*n]
        %a = loop.nest (i0: n) ins(%v[i0]) outs(f32[2*n][2*i0]) into(%e) {
        ^bb0(%p: f32): loop.yield %p }
        %b = loop.nest (i0: n) ins(%v[n + i0]) outs(f32[2*n][2*i0 + 1]) into(%a) {
        ^bb0(%p: f32): %q = arith.negf %p : f32 loop.yield %q }
        loop.yield %b, %v
      } }"""
    kernel = Parser(make_context(), text).parse_module().body.block.first_op
    assert isinstance(kernel, KernelOp)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    b, v = evaluate_kernel(kernel, EvaluationContext(by_symbol({"n": 3})), x)
    np.testing.assert_array_equal(b, [0, -3, 1, -4, 2, -5])
    np.testing.assert_array_equal(v, x.reshape(-1))
