"""What keeps accesses inside their buffers: the check at block level, on IR that lacks it.

Each kernel here is what a faulty importer would make, or a pass that forgot an assumption.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from dialects.block import KernelOp
from dialects.block.accesses import accesses_of
from dialects.host import host_function
from dialects.host.interpret import interpret_host
from dialects.strata.assumptions import SizeError
from dialects.strata.sizes import assumptions_of
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from passes.base import StrataContext
from passes.block.prove_bounds import BlockProveBounds


def checked(text: str) -> tuple[ModuleOp, StrataContext]:
    """The module as the pass leaves it; a second run must change nothing."""
    context = StrataContext.with_dialects()
    module = Parser(context, f"builtin.module {{{text}}}").parse_module()
    verify(module)
    BlockProveBounds().apply(context, module)
    verify(module)
    once = str(module)
    assert str(Parser(context, once).parse_module()) == once
    BlockProveBounds().apply(context, module)
    assert str(module) == once
    return module, context


def assumed(module: ModuleOp) -> list[str]:
    return [f"{a.left} {a.relation} {a.right}" for a in assumptions_of(host_function(module))
            if not a.is_limit]


def verdicts(module: ModuleOp) -> list[str]:
    """Of every dim of every access, in order."""
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    return ["checked" if a.is_checked else "assumed" if a.dim in a.op.assumed_dims else "proven"
            for kernel in kernels for a in accesses_of(kernel)]


def run(module: ModuleOp, context: StrataContext, *inputs: Array) -> list[Array]:
    return interpret_host(module, inputs, context.weights)


def copy_module(
    x: str, y: str, grid: str, where: Sequence[str], sizes: str = "n", before: str = "",
    to: str = "%p", names: str = "",
) -> str:
    """A kernel that copies %x at `where` to %y at %p, for each %p of the grid."""
    names = names or sizes
    return f"""
    host.func @main(%x: f32[{x}], %y: f32[{y}]) inputs ["x"] outputs ["y"] sizes({names}) {{
      {before}
      host.launch @k(%x, %y) sizes({sizes})
      host.return
    }}
    block.kernel @k(%x: f32[{x}], %y: f32[{y}]) grid(%p: {grid}) sizes({sizes}) {{
      %v = block.load %x[{", ".join(where)}] : tile<f32>
      block.store %v, %y[{to}]
      block.yield
    }}"""


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# ---------------------------------------------------------------------- what was found
def test_more_results_than_an_axis_has() -> None:
    """TopK with a constant k read rows that a shorter run-time axis does not have."""
    module, context = checked(copy_module("n", "5", "5", ["%p"]))
    assert assumed(module) == ["5 <= n"]
    assert verdicts(module) == ["assumed", "proven"]
    run(module, context, floats(5))
    with pytest.raises(SizeError, match="5 <= n, which is 5 <= 4 with n = 4"):
        run(module, context, floats(4))


def test_the_last_row_of_an_empty_axis() -> None:
    """The slice x[-1:] of an axis that is empty read the row before it."""
    module, context = checked(copy_module("n, 3", "3", "3", ["n - 1", "%p"]))
    assert assumed(module) == ["1 <= n"]
    assert run(module, context, floats(2, 3))[0].tolist() == [3, 4, 5]
    with pytest.raises(SizeError):
        run(module, context, floats(0, 3))


def test_parts_of_other_lengths() -> None:
    """Parts of a concatenation whose other dims differ are not as their kernel takes them."""
    module, context = checked("""
    host.func @main(%a: f32[n, 2], %b: f32[m, 3], %y: f32[n, 5]) inputs ["a", "b"] outputs ["y"]
        sizes(n, m) {
      host.launch @left(%a, %y) sizes(n)
      host.launch @right(%b, %y) sizes(n)
      host.return
    }
    block.kernel @left(%a: f32[n, 2], %y: f32[n, 5]) grid(%p: n) sizes(n) {
      %v = block.load %a[%p, t0] : tile<[2]xf32>
      block.store %v, %y[%p, t0]
      block.yield
    }
    block.kernel @right(%b: f32[n, 3], %y: f32[n, 5]) grid(%p: n) sizes(n) {
      %v = block.load %b[%p, t0] : tile<[3]xf32>
      block.store %v, %y[%p, t0 + 2]
      block.yield
    }""")
    assert assumed(module) == ["n == m"]
    assert set(verdicts(module)) == {"proven"}
    run(module, context, floats(4, 2), floats(4, 3))
    for rows in (3, 5):
        with pytest.raises(SizeError):
            run(module, context, floats(4, 2), floats(rows, 3))


@pytest.mark.parametrize("rows", ["n", "m"])
def test_parts_written_beside_each_other(rows: str) -> None:
    """The same as nests write it: each walks its own rows, or those of the result."""
    module, _ = checked(f"""
    host.func @main(%b: f32[m, 3], %y: f32[n, 5]) inputs ["b"] outputs ["y"] sizes(n, m) {{
      host.launch @k(%b, %y) sizes(n, m)
      host.return
    }}
    block.kernel @k(%b: f32[m, 3], %y: f32[n, 5]) grid(%p: {rows}) sizes(n, m) {{
      %v = block.load %b[%p, t0] : tile<[3]xf32>
      block.store %v, %y[%p, t0 + 2]
      block.yield
    }}""")
    assert assumed(module) == ["m <= n" if rows == "m" else "n <= m"]


def test_a_condition_longer_than_its_axis() -> None:
    """Compress gathers where a condition holds: places from data, beyond the axis or not."""
    module, context = checked("""
    host.func @main(%x: f32[n], %at: i64[m], %y: f32[m]) inputs ["x", "at"] outputs ["y"]
        sizes(n, m) {
      host.launch @k(%x, %at, %y) sizes(n, m)
      host.return
    }
    block.kernel @k(%x: f32[n], %at: i64[m], %y: f32[m]) grid(%p: m) sizes(n, m) {
      %i = block.load %at[%p] : tile<i64>
      %v = block.load %x[%i] : tile<f32>
      block.store %v, %y[%p]
      block.yield
    }""")
    assert assumed(module) == []
    assert verdicts(module) == ["proven", "checked", "proven"]
    assert [str(r) for r in context.remarks] == [
        "block-prove-bounds: checked: index %d1 may be out of bounds for dim 0 of size n"]
    found = run(module, context, floats(3) + 1, np.array([2, 5, -1, 0], np.int64))
    assert found[0].tolist() == [3, 0, 0, 1]


# ---------------------------------------------------------------------- their siblings
@pytest.mark.parametrize(("where", "wanted"), [
    ("%p", ["n <= m"]),
    ("%p + 1", ["min(1, n) + n <= m"]),
    ("m - %p - 1", ["n <= m"]),
    ("2*%p", ["2*n <= m + min(1, n)"]),
])
def test_walks_of_other_sizes(where: str, wanted: list[str]) -> None:
    """Nothing is asked for where nothing runs."""
    module, _ = checked(copy_module("m", "n", "n", [where], sizes="m, n", before=""))
    text = assumed(module)
    assert len(text) == len(wanted)
    for rows, size in [(0, 0), (1, 2), (2, 2), (2, 3), (3, 2), (1, 1), (0, 4), (4, 1)]:
        needed = max((eval(where.replace("%p", "p"), {"p": p, "m": size})
                      for p in range(rows)), default=-1)
        least = min((eval(where.replace("%p", "p"), {"p": p, "m": size})
                     for p in range(rows)), default=0)
        fits = least >= 0 and needed < size
        sizes = {Symbol.size("m"): size, Symbol.size("n"): rows}
        holds = all(int(a.left.evaluate(sizes)) <= int(a.right.evaluate(sizes))
                    for a in assumptions_of(host_function(module)))
        assert holds == fits, (rows, size, text)


def test_no_dim_is_negative() -> None:
    module, _ = checked(copy_module("n", "n - 3", "n - 3", ["%p + 3"]))
    assert assumed(module) == ["3 <= n"]
    assert verdicts(module) == ["proven", "proven"]


def test_views_keep_the_number_of_elements() -> None:
    text = """
    host.func @main(%x: f32[n, m], %y: f32[k]) inputs ["x"] outputs ["y"] sizes(n, m, k) {
      %v = host.view %x : f32[k]
      host.copy %v, %y
      host.return
    }"""
    module, _ = checked(text)
    assert assumed(module) == ["m*n == k"]
    known = text.replace("%v =", "strata.assume k == m*n\n      %v =")
    assert assumed(checked(known)[0]) == ["k == m*n"]
    alike = text.replace("host.view %x : f32[k]", "host.view %x : f32[m, n]").replace(
        "%y: f32[k]", "%y: f32[n*m]")
    assert assumed(checked(alike)[0]) == []


def test_a_size_that_data_say() -> None:
    """What a run computes as a size may be anything from 0 on."""
    module, context = checked("""
    host.func @main(%x: f32[n], %c: i64[1]) inputs ["x", "c"] outputs ["y": f32[count]] sizes(n) {
      strata.size count = %c
      %y = host.alloc : f32[count]
      host.launch @k(%x, %y) sizes(n, count)
      host.return %y
    }
    block.kernel @k(%x: f32[n], %y: f32[count]) grid(%p: count) sizes(n, count) {
      %v = block.load %x[%p] : tile<f32>
      block.store %v, %y[%p]
      block.yield
    }""")
    assert assumed(module) == ["count <= n"]
    assert run(module, context, floats(4), np.array([2]))[0].tolist() == [0, 1]
    with pytest.raises(SizeError):
        run(module, context, floats(4), np.array([5]))


def test_each_launch_has_sizes_of_its_own() -> None:
    """A kernel is proven for each of its launches; an assumption stands before the one it is of."""
    module, _ = checked("""
    host.func @main(%a: f32[n], %b: f32[m], %y: f32[4], %z: f32[4]) inputs ["a", "b"]
        outputs ["y", "z"] sizes(n, m) {
      strata.assume 4 <= n
      host.launch @k(%a, %y) sizes(n)
      host.launch @k(%b, %z) sizes(m)
      host.return
    }
    block.kernel @k(%x: f32[s], %y: f32[4]) grid(%p: 4) sizes(s) {
      %v = block.load %x[%p] : tile<f32>
      block.store %v, %y[%p]
      block.yield
    }""")
    assert assumed(module) == ["4 <= n", "4 <= m"]
    ops = [op.name for op in host_function(module).body.block.ops]
    assert ops == ["strata.assume", "host.launch", "strata.assume", "host.launch", "host.return"]


def test_what_no_size_mends_is_checked() -> None:
    """A store that is outside for every size is not stored; no assumption refuses all sizes."""
    module, context = checked(copy_module("n", "n", "n", ["%p"], to="%p + 1"))
    assert verdicts(module) == ["proven", "checked"]
    assert run(module, context, floats(3))[0][1:].tolist() == [0, 1]


def test_a_kernel_that_takes_other_buffers() -> None:
    text = copy_module("n", "n", "n", ["%p"]).replace("@k(%x: f32[n]", "@k(%x: f32[n, 1]").replace(
        "%x[%p]", "%x[%p, 0]")
    with pytest.raises(VerifyException, match=r"C3: .*f32\[n\], f32\[n\].*f32\[n, 1\], f32\[n\]"):
        checked(text)


@pytest.mark.parametrize(("other", "wanted"), [
    ("arith.subf %f, %half : f64", "proven"),
    ("arith.divf %f, %half : f64", "proven"),
    ("arith.divf %half, %f : f64", "checked"),  # NaN lies between no bounds
])
def test_positions_chosen_between_numbers(other: str, wanted: str) -> None:
    """As Resize computes them: one of two floats, clamped to the dim."""
    module, _ = checked(f"""
    host.func @main(%x: f32[9], %y: f32[9]) inputs ["x"] outputs ["y"] sizes() {{
      host.launch @k(%x, %y) sizes()
      host.return
    }}
    block.kernel @k(%x: f32[9], %y: f32[9]) grid(%p: 9) sizes() {{
      %i = block.index %p : tile<index>
      %t = block.map (%i[]) : tile<i64> {{
      ^bb0(%n: index):
        %w = arith.index_cast %n : index to i64
        %f = arith.sitofp %w : i64 to f64
        %half = arith.constant {"1.0" if "divf %f" in other else "0.0"} : f64
        %o = {other}
        %c = arith.cmpf oeq, %f, %half : f64
        %s = arith.select %c, %f, %o : f64
        %low = arith.constant 0.0 : f64
        %high = arith.constant 8.0 : f64
        %a = arith.maximumf %s, %low : f64
        %b = arith.minimumf %a, %high : f64
        %r = arith.fptosi %b : f64 to i64
        block.yield %r
      }}
      %v = block.load %x[%t] : tile<f32>
      block.store %v, %y[%p]
      block.yield
    }}""")
    assert verdicts(module) == [wanted, "proven"]
