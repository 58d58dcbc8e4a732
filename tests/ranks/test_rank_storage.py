"""Where collective operations leave their results: in place where nothing needs the operand."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.context import make_context
from dialects.host import CollectiveOp
from passes.base import StrataContext
from passes.host.plan_buffers import seen_memory
from targets.cuda.planning.plan import plan_host
from targets.cuda.runtime.planned import Collect, HostPlan
from tests.lowering import lower
from tests.ranks.test_rank_levels import make_cpu_context

_GROUP = 'group = #strata.group<"g", [[0, 1]]>'


def lowered(lines: str, results: str) -> ModuleOp:
    types = ", ".join("f32[4, 6]" for _ in results.split(","))
    names = ", ".join(f'"y{k}"' for k, _ in enumerate(results.split(",")))
    text = f"""builtin.module {{
  strata.func @main(%x: f32[4, 6]) -> ({types}) inputs ["x"] outputs [{names}] {{
    %a = graph.exp %x : f32[4, 6]
    {lines}
    strata.return {results}
  }}
}}"""
    module = Parser(make_context(), text).parse_module()
    context: StrataContext = make_cpu_context()
    list(lower(module, context))
    return module


@pytest.mark.parametrize(("lines", "results", "in_place"), [
    (f'%y = graph.all_reduce %a {{reduce = "sum", {_GROUP}}} : f32[4, 6]', "%y", True),
    (f"%y = graph.broadcast_ranks %a {{root = 1, {_GROUP}}} : f32[4, 6]", "%y", True),
    (f"%y = graph.all_to_all %a {{{_GROUP}}} : f32[4, 6]", "%y", False),
    (f'%y = graph.all_reduce %x {{reduce = "sum", {_GROUP}}} : f32[4, 6]', "%y", False),
    (f'%y = graph.all_reduce %a {{reduce = "sum", {_GROUP}}} : f32[4, 6]', "%y, %a", False),
    (f'%y = graph.all_reduce %a {{reduce = "sum", {_GROUP}}} : f32[4, 6] '
     "%z = graph.mul %a, %y : f32[4, 6]", "%z", False),
])
def test_results_are_in_place_where_the_operand_dies(
    lines: str, results: str, in_place: bool
) -> None:
    [op] = [op for op in lowered(lines, results).walk() if isinstance(op, CollectiveOp)]
    assert (seen_memory(op.source) == seen_memory(op.target)) == in_place


def test_the_plan_of_a_launch_keeps_collectives_as_data() -> None:
    module = lowered(f'%y = graph.all_reduce %a {{reduce = "max", {_GROUP}}} : f32[4, 6]', "%y")
    plan = plan_host(module)
    [step] = [s for s in plan.steps if isinstance(s, Collect)]
    assert step.exchange.how.reduction == "max" and step.exchange.element == "float32"
    [read] = [s for s in HostPlan.read(plan.facts()).steps if isinstance(s, Collect)]
    assert read == step
