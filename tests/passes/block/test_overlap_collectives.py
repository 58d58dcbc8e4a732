"""Products that are computed in parts, which are exchanged meanwhile."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from compiler import compile as compile_model
from dialects.block import KernelOp
from dialects.context import make_context
from dialects.host import CollectiveOp, LaunchOp, PartOp
from dialects.ranks.peers import run_ranks
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from passes.block.overlap_collectives import BlockOverlapCollectives
from passes.rewrites.block.row_parts import row_axis
from targets.cuda import TARGET
from targets.cuda.emit import emit_kernel
from targets.cuda.planning.plan import plan_host
from targets.cuda.runtime.dependencies import waits_of
from targets.cuda.runtime.graph_cache import accesses_of
from targets.cuda.runtime.planned import Collect, HostPlan, Launch
from targets.cuda.target import CudaScheduling
from targets.options import TargetOptions
from targets.reference.interpret import interpret_rank
from tests.lowering import lower
from tests.ranks.programs import element_dtype

GROUP = '#strata.group<"g", [[0, 1]]>'
SLOW = {"exchanges": 1e9, "waits": 0.0}
"""A link that is slow, but not late: the smaller the parts, the better."""


def program(rows: str, depth: int, columns: int, element: str) -> str:
    """A product, summed over two ranks, and a residual. `rows`: the dims before the last one."""
    e = element
    y = f"{e}[{rows}, {columns}]"
    return f"""builtin.module {{
  strata.func @main(%x: {e}[{rows}, {depth}], %w: {e}[{depth}, {columns}], %r: {y}) -> ({y}) \
inputs ["x", "w", "r"] outputs ["z"] {{
    %a = graph.matmul %x, %w : {y}
    %b = graph.all_reduce %a {{reduce = "sum", group = {GROUP}}} : {y}
    %z = graph.add %b, %r : {y}
    strata.return %z
  }}
}}
"""


def lowered(text: str, **rates: float) -> tuple[ModuleOp, StrataContext]:
    """The module after all passes, for a host with two GPUs whose link has these rates."""
    target = TARGET.bind(TargetOptions(features="sm_90"))
    facts = replace(target.facts, exchanged_elements=0)
    context = StrataContext(rules=target.scheduling, facts=replace(
        facts, rates=replace(facts.rates, **rates)))
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, context):
        pass
    return module, context


def parts(module: ModuleOp) -> int:
    """The number of exchanges."""
    return sum(isinstance(op, CollectiveOp) for op in module.walk())


def inputs(rows: tuple[int, ...], depth: int, columns: int, element: str, rank: int) -> list[Array]:
    """Small integers; the residual is that of all ranks."""
    rng = np.random.default_rng(rank)
    x, w = (rng.integers(-2, 3, s) for s in ((*rows, depth), (depth, columns)))
    r = np.random.default_rng(7).integers(-2, 3, (*rows, columns))
    return [a.astype(element_dtype(element)) for a in (x, w, r)]


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that executes one program after another, so that parts take parts of the time."""
    monkeypatch.setattr(CudaScheduling, "launch_seconds", lambda self, launch, kernel, occupied: (
        1e-6 + 1e-5 * prod(e.constant for e in kernel.grid.data)))


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("element", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("rows", [(256,), (1, 256), (1, 1, 512)], ids=str)
def test_parts_are_those_of_the_whole(rows: tuple[int, ...], element: str) -> None:
    module, _ = lowered(program(", ".join(map(str, rows)), 64, 96, element), **SLOW)
    assert parts(module) > 1
    given = [inputs(rows, 64, 96, element, rank) for rank in range(2)]
    for [found] in run_ranks(2, lambda peers: interpret_rank(
            module, WeightStore(), given[peers.rank], peers)):
        wanted = sum(x.astype(np.float64) @ w.astype(np.float64) for x, w, _ in given)
        np.testing.assert_array_equal(found.astype(np.float64), wanted + given[0][2])


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(("rows", "columns", "rates"), [
    ("256", 96, {"waits": 1.0}),  # each exchange takes a second
    ("256", 96, {"exchanges": 1e15, "waits": 0.0}),  # exchanges take no time
    ("251", 96, SLOW),  # no rows of all tiles
    ("2, 129", 96, SLOW),  # rows of a batch are not contiguous in tiles
    ("n", 96, SLOW),  # only the run knows
])
def test_what_stays_whole(rows: str, columns: int, rates: dict[str, float]) -> None:
    module, _ = lowered(program(rows, 64, columns, "f16"), **rates)
    assert parts(module) == 1 and not any(isinstance(op, PartOp) for op in module.walk())


def test_predicted_times_are_told() -> None:
    """With the link of an H200: some products are divided, and others not."""
    [remark] = [r.text for r in lowered(program("8192", 2048, 4096, "bf16"))[1].remarks
                if "predicted are" in r.text]
    assert "is computed in 4 parts, which are exchanged while others are computed" in remark
    [remark] = [r.text for r in lowered(program("2048", 7168, 4096, "bf16"))[1].remarks
                if "predicted are" in r.text]
    assert "is computed whole before it is exchanged" in remark


def test_persistent_kernels_leave_multiprocessors_to_exchanges() -> None:
    module, context = lowered(program("8192", 2048, 4096, "bf16"))
    kernels = {op.sym_name.data: emit_kernel(op) for op in module.walk()
               if isinstance(op, KernelOp)}
    launched = [op.kernel.data for op in module.walk() if isinstance(op, LaunchOp)]
    first, *others = (kernels[name] for name in launched[:4])
    occupied = context.facts.rates.occupied
    assert first.stays and first.spare == 0 and first.programs([32, 16], 132) == 132
    assert {k.spare for k in others} == {occupied}
    assert others[0].programs([32, 16], 132) == 132 - occupied


def test_a_product_does_not_wait_for_the_exchange_before() -> None:
    """In the graph of a launch, where steps follow from what they access."""
    module, _ = lowered(program("8192", 2048, 4096, "bf16"))
    plan = plan_host(module)
    assert HostPlan.read(plan.facts()).facts() == plan.facts()
    waits = waits_of([accesses_of(step, {}) for step in plan.steps], 2)
    kinds = [type(step) for step in plan.steps]
    assert kinds[:4] == [Launch, Collect, Launch, Collect]
    assert waits[1] == [0]
    assert 1 not in waits[2]  # the next product is computed meanwhile
    assert {1, 2} >= {*waits[3]} and 2 in waits[3]


def test_parts_of_memory_in_machine_code(tmp_path: Path) -> None:
    """The CPU target exchanges nothing meanwhile, but runs texts with parts."""
    file = tmp_path / "parts.mlir"
    file.write_text("""builtin.module {
  host.func @main(%x: f32[n, 4], %y: f32[4], %z: f32[n - 1, 4]) inputs ["x"] outputs ["y", "z"] \
sizes(n) {
    %p = host.part %x[4*n - 4] : f32[4]
    host.copy %p, %y
    %q = host.part %x[4] : f32[n - 1, 4]
    host.copy %q, %z
    host.return
  }
}
""")
    exe = compile_model(file, target="cpu", cache="off")
    for rows in (1, 5):
        x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
        y, z = exe(x)
        np.testing.assert_array_equal(y, x[-1])
        np.testing.assert_array_equal(z, x[1:])


KERNEL = """builtin.module {{
  block.kernel @k(%x: f32[64, 8], %y: f32[64, 8]) grid(%p: 4) sizes() {{
    {lines}
    block.yield
  }}
}}
"""


@pytest.mark.parametrize(("lines", "divides"), [
    ("%0 = block.load %x[16*%p + t0, t1] : tile<16x8xf32> "
     "block.store %0, %y[16*%p + t0, t1]", True),
    ("%0 = block.load %x[t0, t1] : tile<16x8xf32> "
     "block.store %0, %y[16*%p + t0, t1]", True),  # the same rows for all
    ("%0 = block.load %x[15*%p + t0, t1] : tile<16x8xf32> "
     "block.store %0, %y[16*%p + t0, t1]", False),  # one row is also its neighbour's
    ("%0 = block.load %x[-16*%p + t0 + 48, t1] : tile<16x8xf32> "
     "block.store %0, %y[16*%p + t0, t1]", False),  # from the end
    ("%0 = block.load %x[16*%p + t0, t1] : tile<16x8xf32> %1 = block.load %x[t0, t1] : "
     "tile<16x8xf32> block.store %0, %y[16*%p + t0, t1]", False),  # and the first ones
    ("%0 = block.load %x[16*%p + t0, t1] : tile<16x8xf32> %1 = block.index %p + t0 : "
     "tile<16xindex> block.store %0, %y[16*%p + t0, t1]", False),  # its number is a value
    ("%0 = block.load %x[t0, 2*%p + t1] : tile<16x2xf32> "
     "block.store %0, %y[t0, 2*%p + t1]", False),  # columns
])
def test_rows_are_divided_only_by_tiles(lines: str, divides: bool) -> None:
    module = Parser(make_context(), KERNEL.format(lines=lines)).parse_module()
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    axis = row_axis(kernel, 1)
    assert (axis is not None) == divides


@pytest.mark.usefixtures("busy")
def test_nothing_is_divided_twice() -> None:
    module, context = lowered(program("256", 64, 96, "f16"), **SLOW)
    before = str(module)
    BlockOverlapCollectives().apply(context, module)
    assert str(module) == before
