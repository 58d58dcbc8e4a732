"""What passes stand on: the context, the registry, and the rewriter."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import PassPipeline

from dialects.graph import AddOp, ExpOp, MulOp, NegOp
from dialects.ranks.mesh import Mesh
from dialects.registry import register_dialects
from dialects.text.syntax import location_name
from passes.base import PassError, StrataContext, StrataPass, strata_context
from passes.registry import find_pass, parse_passes, pass_loaders, pass_names
from passes.rewriting import Rewriter, erase_unused, functions, rewrite
from tests import processes
from tests.passes.harness import parse

TEXT = """builtin.module {
  strata.func @main(%x: f32[n], %y: f32[n]) -> (f32[n]) inputs ["x", "y"] outputs ["r"] {
    %a = graph.add %x, %y : f32[n]
    %b = graph.neg %a : f32[n]
    %r = graph.neg %b : f32[n]
    strata.return %r
  }
}
"""


# ---------------------------------------------------------------------- registry
def test_every_pass_is_found_and_has_its_name() -> None:
    assert {"graph-dce", "host-bufferize", "loop-deduplicate-kernels"} <= set(pass_names())
    for name, load in pass_loaders().items():
        assert load().name == name
        assert load().__doc__


def test_passes_without_options_are_no_dataclasses_of_their_own() -> None:
    """Each would take as long to define as a small pass to run."""
    loaded = [load() for load in pass_loaders().values()]
    assert not [p.name for p in loaded
                if "__dataclass_fields__" in vars(p) and not vars(p).get("__annotations__")]


def test_options_in_pipeline_text() -> None:
    (plan,) = parse_passes("host-plan-buffers{in-place=false}")
    assert plan == find_pass("host-plan-buffers")(in_place=False)  # type: ignore[call-arg]
    assert str(plan.spec()) == "host-plan-buffers{in_place=false}"


@pytest.mark.parametrize(("text", "message"), [
    ("graph-dec", "no pass 'graph-dec'; there are: .*graph-dce"),
    ("graph-dce{deep=true}", "cannot read the passes"),
    ("graph-dce{", "cannot read the passes"),
])
def test_wrong_pipeline_text(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_passes(text)


def test_names_need_no_import() -> None:
    code = ("import sys, passes.registry as r; assert 'graph-dce' in r.pass_names(); "
            "assert 'passes.graph.dce' not in sys.modules")
    processes.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------- context
def test_a_plain_context_has_an_empty_store() -> None:
    context = Context()
    register_dialects(context)
    module = parse(TEXT, context)  # type: ignore[arg-type]
    PassPipeline(tuple(parse_passes("graph-simplify,graph-dce"))).apply(context, module)
    assert "graph.neg" not in str(module)
    assert strata_context(context).weights.arrays == {}


def test_clone_shares_weights_and_target() -> None:
    context = StrataContext.with_dialects()
    context.mesh, context.rank, context.exact = Mesh.parse("tp=2"), 1, True
    clone = context.clone()
    for name in {f.name for f in fields(context)} - {"noted", "provenance", "apart", "together"}:
        assert getattr(clone, name) == getattr(context, name), name
    assert clone.weights is context.weights
    assert clone.remarks is not context.remarks
    parse(TEXT, clone)


def test_a_remark_is_made_once() -> None:
    context = StrataContext.with_dialects()
    (func,) = functions(parse(TEXT, context))
    pass_ = find_pass("graph-dce")()
    assert isinstance(pass_, StrataPass)
    for _ in range(2):
        context.remark(pass_, func, "because")
    assert [str(r) for r in context.remarks] == [f"graph-dce at {location_name(func)}: because"]


def test_pass_error_names_all_nodes() -> None:
    error = PassError("graph-x", [("conv1", "no"), ("", "not either")])
    assert str(error) == "graph-x:\nno (node 'conv1')\nnot either"
    assert str(PassError("graph-x", [("conv1", "no")])) == "graph-x: no (node 'conv1')"


# ---------------------------------------------------------------------- rewriting
def to_exp(op: NegOp, at: Rewriter) -> SSAValue | None:
    return at(ExpOp, op.x) if isinstance(op.x.owner, AddOp) else None


def test_new_operations_inherit_the_location() -> None:
    context = StrataContext.with_dialects()
    module = parse(TEXT, context)
    (func,) = functions(module)
    ops = list(func.body.block.ops)
    node, name = location_name(ops[1]), ops[1].results[0].name_hint
    assert rewrite(module, {NegOp: [to_exp]}, context)
    new = list(func.body.block.ops)[1]
    assert (new.name, location_name(new), new.results[0].name_hint) == ("graph.exp", node, name)
    assert not rewrite(module, {NegOp: [to_exp]}, context)


def test_what_a_rule_leaves_unused_is_erased() -> None:
    context = StrataContext.with_dialects()
    module = parse(TEXT, context)
    (func,) = functions(module)

    def unused(op: AddOp, at: Rewriter) -> None:
        at(MulOp, op.x, op.y)

    rewrite(module, {AddOp: [unused]}, context)
    assert "graph.mul" not in str(module)
    assert erase_unused(func.body.block) == 0


def test_rules_see_what_rules_made() -> None:
    context = StrataContext.with_dialects()
    module = parse(TEXT, context)

    def halve(op: NegOp, at: Rewriter) -> SSAValue | None:
        return op.x.owner.x if isinstance(op.x.owner, NegOp) else None

    def lift(op: ExpOp, at: Rewriter) -> SSAValue:
        return at(NegOp, op.x)

    rewrite(module, {NegOp: [to_exp, halve], ExpOp: [lift]} | {NegOp: [halve]}, context)
    assert [op.name for op in functions(module)[0].body.block.ops] == [
        "graph.add", "strata.return"]


@dataclass(frozen=True)
class Nothing(StrataPass):
    name = "nothing"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        assert isinstance(context, StrataContext)


def test_a_pass_gets_our_context() -> None:
    Nothing().apply(Context(), ModuleOp([]))
