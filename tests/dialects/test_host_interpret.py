"""The host level executed: sizes, memory, launches and errors, against plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.math import Math
from xdsl.ir import Operation
from xdsl.parser import Parser

from dialects.block.dialect import Block
from dialects.graph.interpret import EvaluationError
from dialects.host.dialect import Host
from dialects.host.interpret import interpret_host
from dialects.loop.dialect import Loop
from dialects.strata.dialect import Strata
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify

ADD = """{
    ^bb0(%left: f32, %right: f32):
      %both = arith.addf %left, %right : f32
      TERMINATOR %both
    }"""
KERNELS = """
  block.kernel @add(%a: f32[m], %b: f32[m], %y: f32[m]) grid(%p: m ceildiv 16) sizes(m) {
    %l = block.load %a[16*%p + t0] check [0] : tile<[16]xf32>
    %r = block.load %b[16*%p + t0] check [0] : tile<[16]xf32>
    %s = block.map (%l[0], %r[0]) : tile<[16]xf32> """ + ADD.replace(
    "TERMINATOR", "block.yield") + """
    block.store %s, %y[16*%p + t0] check [0]
    block.yield
  }
  loop.kernel @add_rows(%a: f32[m, 8], %b: f32[8]) -> (f32[m, 8]) sizes(m) {
    %y = loop.nest (i0: m, i1: 8) ins(%a[i0, i1], %b[i1]) outs(f32[m, 8][i0, i1]) """ + (
    ADD.replace("TERMINATOR", "loop.yield")) + """
    loop.yield %y
  }"""
X = np.arange(24, dtype=np.float32).reshape(3, 8)


def parse(body: str, head: str = "", arena: str = "", verifies: bool = True) -> Operation:
    """A module of the kernels and a driver from x to y, both f32[n, 8] unless `head` says more."""
    arguments = head or '(%x: f32[n, 8], %y: f32[n, 8]) inputs ["x"] outputs ["y"]'
    text = f"""builtin.module {{ {KERNELS}
      host.func @main{arguments} sizes(n) {arena} {{
        {body}
        host.return
      }}
    }}"""
    context = Context()
    for dialect in (Builtin, Arith, Math, Strata, Block, Loop, Host):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    if verifies:
        verify(module)
    return module


def run(body: str, inputs: Sequence[Array], **options: Any) -> list[Array]:
    return interpret_host(parse(body, **options), inputs, WeightStore())


def test_views_allocations_and_launches_of_block_kernels() -> None:
    (y,) = run("""
        %v = host.view %x : f32[8*n]
        %h = host.alloc : f32[8*n]
        host.launch @add(%v, %v, %h) sizes(8*n)
        %w = host.view %y : f32[8*n]
        host.launch @add(%h, %v, %w) sizes(8*n)""", [X])
    np.testing.assert_array_equal(y, 3 * X)


def test_kernels_of_the_loop_level_and_constants() -> None:
    store = WeightStore()
    row = np.arange(8, dtype=np.float32)
    handle = store.add("row", row)
    (y,) = interpret_host(parse(f"""
        %w = host.constant {handle} : f32[8]
        host.launch @add_rows(%x, %w, %y) sizes(n)"""), [X], store)
    np.testing.assert_array_equal(y, X + row)
    (y,) = run("""
        %w = host.constant literal[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] : f32[8]
        host.launch @add_rows(%x, %w, %y) sizes(n)""", [X])
    np.testing.assert_array_equal(y, X + row)


def test_the_arena_is_real_memory_so_overlaps_show() -> None:
    body = """
        %h = host.alloc offset 0 : f32[n, 8]
        %g = host.alloc offset OFFSET : f32[n, 8]
        host.copy %x, %h
        host.copy %y, %g
        host.copy %h, %y"""
    (good,) = run(body.replace("OFFSET", "32*n"), [X], arena="arena(64*n)")
    np.testing.assert_array_equal(good, X)
    (bad,) = run(body.replace("OFFSET", "16*n"), [X], arena="arena(64*n)")
    assert np.isnan(bad).sum() == 12


def test_memory_that_nobody_wrote_is_poisoned() -> None:
    (y,) = run("%h = host.alloc : f32[n, 8]\nhost.copy %h, %y", [X])
    assert np.isnan(y).all()


def test_outputs_are_fresh_and_inputs_stay() -> None:
    x = X.copy()
    (y,) = run("host.copy %x, %y", [x])
    y += 1
    np.testing.assert_array_equal(x, X)
    (y,) = run("host.copy %x, %y", [np.asfortranarray(X)])
    np.testing.assert_array_equal(y, X)


def test_another_way_to_run_kernels() -> None:
    launched: list[tuple[str, dict[Symbol, int]]] = []

    def run_kernel(kernel: Any, buffers: Sequence[Array], sizes: dict[Symbol, int]) -> None:
        launched.append((kernel.sym_name.data, sizes))
        buffers[-1][...] = 5

    module = parse("%w = host.alloc : f32[8]\nhost.launch @add_rows(%x, %w, %y) sizes(n)")
    (y,) = interpret_host(module, [X], WeightStore(), run_kernel)
    assert launched == [("add_rows", {Symbol.size("m"): 3})] and (y == 5).all()


# ---------------------------------------------------------------------- errors
TWO = '(%a: f32[n, 8], %b: f32[2*n], %y: f32[n]) inputs ["a", "b"] outputs ["y"]'


@pytest.mark.parametrize(("shape", "message"), [
    ((7,), r"dim 0 of input 'b' is 7 but must be 6"),
    ((2, 3), r"input 'b' must have 1 dims"),
])
def test_sizes_that_contradict_name_the_input(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        run("", [X, np.zeros(shape, np.float32)], head=TWO)


def test_inputs_that_do_not_fit_are_named() -> None:
    with pytest.raises(EvaluationError, match="input 'x' must be float32, not float64"):
        run("", [X.astype(np.float64)])
    with pytest.raises(EvaluationError, match="takes 1 inputs"):
        run("", [X, X])


@pytest.mark.parametrize(("body", "message"), [
    ("host.launch @nobody(%x, %y) sizes()", "@nobody.*no such kernel"),
    ("host.launch @add(%x, %x, %y) sizes(n)", r"@add failed: .*%a"),
    ("%h = host.alloc offset 0 : f32[n]", "no arena"),
])
def test_a_step_that_fails_is_named(body: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        run(body, [X], verifies=False)


def test_an_allocation_outside_the_arena_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="bytes 16 to 28 of an arena of 24"):
        run("%h = host.alloc offset 16 : f32[n]", [X], arena="arena(8*n)")
