"""Control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.frontend import formulas as f
from compiler.frontend.branches import Branch, join
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.peeling import repeat
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.stablehlo.ops.lapack import CALLS
from compiler.frontend.values import Value
from dialects.symbolic.expr import Expr


@hlo_op("stablehlo.while")
def while_loop(n: Node, *initial: Value) -> list[Value]:
    test, body = n.op.regions
    node = n.build.node

    def goes_on(values: Sequence[Value]) -> Value:
        [found] = n.run(test, values)
        return found.reshape([])

    def turn(step: Expr, values: list[Value]) -> Turn:
        made = n.run(body, values)
        return Turn(goes_on(made), made, [])

    last, _ = repeat(n.build, Loop(f"{n.name}_body", None, goes_on(initial), list(initial)), turn)
    n.build.node = node
    return list(last)


@hlo_op("stablehlo.if")
def conditional(n: Node, condition: Value) -> list[Value]:
    first, second = n.op.regions
    return _branched(n, condition.reshape([]), lambda: n.run(first, []), lambda: n.run(second, []))


@hlo_op("stablehlo.case")
def case(n: Node, index: Value) -> list[Value]:
    """The branch of this number; the last one for any other number."""
    return _chosen(n, index.reshape([]), 0)


def _chosen(n: Node, index: Value, number: int) -> list[Value]:
    """The branch of this number if the index is that, else one of those after it."""
    regions = n.op.regions
    if number == len(regions) - 1:
        return n.run(regions[number], [])
    return _branched(n, f.equal(index, number), lambda: n.run(regions[number], []),
                     lambda: _chosen(n, index, number + 1))


def _branched(
    n: Node, condition: Value, first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> list[Value]:
    mark, node = n.build.mark(), n.build.node

    def branch(results: Callable[[], list[Value]], label: str) -> Branch:
        with n.build.function(f"{n.name}_{label}") as frame:
            return Branch(frame, results())

    then, otherwise = branch(first, "then"), branch(second, "else")
    n.build.node = node
    return join(n.build, condition, then, otherwise, mark)


@hlo_op("stablehlo.map")
def mapped(n: Node, *operands: Value) -> list[Value]:
    """A region of numbers for the elements of tensors."""
    return [v.broadcast(operands[0].shape) for v in n.each(n.op.regions[0], operands)]


SAME = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
        "annotate_device_placement")
"""Calls that return their operand."""


@hlo_op("stablehlo.custom_call")
def custom_call(n: Node, *operands: Value) -> list[Value]:
    """Notes about devices and layouts, and checks of sizes, which say nothing about results; and
    calls of LAPACK."""
    target = str(n.op.attributes.get("call_target_name"))
    if target in SAME:
        return list(operands)
    if target == "shape_assertion":
        return []
    if target in CALLS:
        return CALLS[target](n, n.op.attributes.get("mhlo.backend_config", {}), operands)
    if "callback" in target:
        raise Fault("it calls a function of Python", "leave jax.pure_callback, jax.io_callback and "
                    "jax.debug out of what is lowered")
    raise Fault(f"it calls {target}, a library's function", "lower the program for a platform "
                "whose programs have operations in its place: .lower(lowering_platforms=('tpu',))")
