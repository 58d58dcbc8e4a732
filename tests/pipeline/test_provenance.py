"""From each node of a model to its operations at every level, or the reason why none is left.

Holes are counted: operations that name no node, and nodes that are neither reached nor explained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from xdsl.ir import SSAValue

from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.frontend.origins import ModelNode
from compiler.instrument.provenance import Origins
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from compiler.pipeline.text import format_module, parse_module
from compiler.reporting.listings import Part, code_listing, listing, numbers_of
from dialects.block import KernelOp
from dialects.graph import AbsOp, NegOp
from dialects.text.syntax import location_names
from passes.base import StrataContext
from passes.events import UNUSED, Rewrite
from passes.rewriting import Rewriter, rewrite
from targets.cpu.build.worker import assembly_text
from targets.cpu.emit.kernel import emit_kernel_text
from targets.cpu.emit.marks import operation_lines
from targets.cpu.llvm.modules import ModuleText, joined
from targets.cpu.llvm.places import Places
from targets.cpu.machine import machine_of
from targets.origins import comment, is_code
from tests.counts import models
from tests.counts.count import Subject
from tests.filecheck import filecheck
from tests.models.onnx_graph import OnnxGraph
from tests.models.test_shared_layers import BLOCKS, SHARED, Block, model

SUBJECTS = (models.transformer, models.cnn, models.lstm, models.quantized, models.halves,
            models.experts, models.attention, models.upsampling, models.groups, models.control)
CODED = (models.control, models.halves, models.cnn, models.experts, *(
    pytest.param(make, marks=pytest.mark.slow) for make in (
        models.transformer, models.lstm, models.quantized, models.attention, models.upsampling)))
"""Those whose target code is compiled; assembly takes seconds."""
LEAST_LINES = 0.99
"""The least share of lines of kernels in target code that name a node."""
LEAST = 0.99
"""The least share of operations of a level that name a node."""


def watched(model: MemoryModel, target: str) -> Origins:
    """What is known of a model's nodes after all passes."""
    options = CompileOptions(target, cache="off", tuned="off", features={
        "cpu": "avx2", "cuda": "sm_90"}.get(target))
    origins = Origins()
    Compiler(model, options, (origins,)).lower("block")
    return origins


def onnx_model(subject: Subject) -> MemoryModel:
    return MemoryModel(f"{subject.name}.onnx", subject.model.SerializeToString())


def unreached(origins: Origins, parts: Sequence[Part]) -> list[str]:
    """The nodes that a kernel computes and for which no line stands."""
    reached = {n for part in parts for nodes in part.nodes for n in nodes}
    return [n.name for k, n in enumerate(origins.nodes)
            if origins.kernels_of(n) and k not in reached]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("make", SUBJECTS, ids=lambda make: make.__name__)
def test_there_are_no_holes(make: Callable[[], Subject], target: str) -> None:
    origins = watched(onnx_model(make()), target)
    assert origins.levels.keys() == {"graph", "loop", "host", "block"}
    for level, (located, total) in origins.levels.items():
        assert located >= LEAST * total, f"{level}: {total - located} of {total} name no node"
    assert origins.nodes
    assert [n.name for n in origins.nodes if not origins.kernels_of(n) and not origins.why(n)] == []


@pytest.mark.parametrize(("target", "level"), [
    ("cpu", "llvm"), ("cpu", "asm"), ("cuda", "triton"), ("cuda", "ptx"),
    ("cuda", "sass")])
@pytest.mark.parametrize("make", CODED, ids=lambda make: make.__name__)
def test_lines_of_target_code_have_nodes(
    make: Callable[[], Subject], target: str, level: str
) -> None:
    """Nearly all lines of kernels, and each line only nodes of its own kernel."""
    if level in ("ptx", "sass"):
        pytest.importorskip("triton")
    origins, options = Origins(), CompileOptions(
        target, tuned="off", features={"cpu": "avx2", "cuda": "sm_90"}[target])
    compiler = Compiler(onnx_model(make()), options, (origins,))
    state = compiler.lower()
    kernels = [op for op in state.module.body.block.ops if isinstance(op, KernelOp)]
    index = {n.name: k for k, n in enumerate(origins.nodes)}
    text = compiler.emit(state, level)
    parts = code_listing(text, [k.sym_name.data for k in kernels], index)
    lines = [nodes for part in parts if part.symbol
             for line, nodes in zip(part.lines, part.nodes, strict=True) if is_code(line)]
    located = sum(map(bool, lines))
    assert located >= LEAST_LINES * len(lines), f"{len(lines) - located} of {len(lines)}"
    assert unreached(origins, parts) == []
    for op in kernels:
        allowed = {k for inner in op.walk() for n in location_names(inner)
                   for k in numbers_of(n, index)}
        told = {n for part in parts if part.symbol == op.sym_name.data
                for nodes in part.nodes for n in nodes}
        assert told and told <= allowed


@pytest.mark.parametrize(("target", "code"), [("cpu", "llvm"), ("cuda", "triton")])
@pytest.mark.parametrize("block", [b for b, shared in BLOCKS.items() if shared],
                         ids=lambda b: b.__name__)
def test_nodes_of_equal_layers_have_lines(block: Block, target: str, code: str) -> None:
    """At every level and in target code, though all layers share functions and kernels."""
    origins, given = Origins(), model(block, given=True)
    options = CompileOptions(target, passes=SHARED, tuned="off", threads=1,
                             features={"cpu": "avx2", "cuda": "sm_90"}[target])
    Compiler(given, options, (origins,)).lower()
    index = {n.name: k for k, n in enumerate(origins.nodes)}
    names = list(dict.fromkeys(k for kernels in origins.kernels.values() for k in kernels))
    for level in ("graph", "loop", "host", "block", code):
        compiler = Compiler(given, options)
        text = lower_to_text(compiler, level)
        parts = code_listing(text, names, index) if level == code else listing(text, index)
        assert unreached(origins, parts) == [], level


def test_names_that_are_no_nodes_hide_none() -> None:
    """In a comment, behind the name of a constant; and nodes around a node have its lines, too."""
    index = {"a": 0, "f": 1, "f/inner": 2, "c, d": 3}
    text = "def k(x):\n    y = x  # from value_7, a, val, f/inner, c, d\n"
    [part] = code_listing(text, ["k"], index)
    assert part.nodes[1] == [0, 2, 1, 3]


@pytest.mark.parametrize("make", CODED[:3], ids=lambda make: make.__name__)
def test_places_change_no_code(make: Callable[[], Subject]) -> None:
    """Assembly with places has the instructions of the code that runs, which has none."""
    compiler = Compiler(onnx_model(make()), CompileOptions("cpu", tuned="off", features="avx2"))
    state = compiler.lower()
    machine = machine_of("avx2")
    for op in (k for k in state.module.body.block.ops if isinstance(k, KernelOp)):
        places = Places()
        located = emit_kernel_text(op, machine, "k", places).module
        located = joined([located, ModuleText((), places.texts())])
        plain = emit_kernel_text(op, machine, "k").module
        assert "!dbg" in located.text and "!dbg" not in plain.text
        found, wanted = ([line for line in assembly_text(
            t.text, machine.cpu, machine.attributes).splitlines() if is_code(line)]
            for t in (located, plain))
        assert found == wanted


def test_lines_of_operations_are_those_of_the_text() -> None:
    compiler = Compiler(onnx_model(models.transformer()), CompileOptions(
        "cpu", tuned="off", features="avx2"))
    for op in compiler.lower().module.body.block.ops:
        if isinstance(op, KernelOp):
            text = str(op).splitlines()
            lines = operation_lines(op)
            assert all(inner.name in text[k - 1] for inner, k in lines.items())
            assert len({*lines.values()}) == len(lines) > 1


def test_names_of_any_kind_are_read_back() -> None:
    """Commas, quotes, slashes and comments in names of nodes."""
    names = ["a, b", 'q"uote\\', "/abs/x", "enc/layer.0/Add", "no # from here", "plain", "é"]
    index = {name: k for k, name in enumerate(names)}
    for k, name in enumerate(names):
        places = Places()
        mark = places.place(places.function("f", ()), [name, "plain"], 3)
        text = "\n".join([f"define void @f() !dbg !13 {{\n  ret void, !dbg !{mark}\n}}",
                          *places.texts().values()])
        [part] = code_listing(text, ["f"], index)
        assert part.nodes[1] == list(dict.fromkeys([k, 5])), name
        assert part.lines[1] == "  ret void"
        line = f"def f(x):\n    y = x{comment([name, 'plain'])}\n"
        [part] = code_listing(line, ["f"], index)
        assert part.nodes[1] == list(dict.fromkeys([k, 5])), name


@pytest.mark.parametrize(("target", "features", "level", "sign"), [
    ("cpu", "avx2", "llvm", "; from "), ("cuda", "sm_90", "triton", "# from ")])
def test_target_code_names_the_nodes(
    target: str, features: str, level: str, sign: str
) -> None:
    origins, options = Origins(), CompileOptions(target, features=features, tuned="off")
    compiler = Compiler(onnx_model(models.cnn()), options, (origins,))
    text = compiler.emit(compiler.lower(), level)
    told = {name for line in text.splitlines() if sign in line
            for name in line.partition(sign)[2].split(", ")}
    assert {n.name for n in origins.nodes if origins.kernels_of(n)} <= told


def test_a_batch_norm_does_not_take_the_name_of_its_convolution() -> None:
    origins = watched(onnx_model(models.cnn()), "cpu")
    by_op: Mapping[str, list[ModelNode]] = {}
    for op in ("Conv", "BatchNormalization", "Relu", "HardSwish"):
        by_op = {**by_op, op: [n for n in origins.nodes if n.op == op]}
    assert all(by_op.values())
    assert all(origins.kernels_of(n) for nodes in by_op.values() for n in nodes)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("op", ["Relu", "HardSigmoid", "HardSwish", "Elu", "GlobalAveragePool"])
def test_constants_that_nodes_share_take_no_node_along(op: str, target: str) -> None:
    """The zeros of all Relus are one constant; the kernel that reads it last computes only one."""
    g = OnnxGraph({})
    y = g.input("x", np.float32, [1, 24, 6, 6])
    for _ in range(3):  # the last two are equal, and share their kernels
        z = g.node(op, g.node("Conv", y, g.random_weight(24, 24, 3, 3), pads=[1, 1, 1, 1]))
        y = g.node("Softmax", g.node("Mul", z, y), axis=1)
    origins = watched(MemoryModel("m.onnx", g.model({"y": y}).SerializeToString()), target)
    first, *others = (set(origins.kernels_of(n)) for n in origins.nodes if n.op == op)
    assert first and all(others) and not first & set.union(*others)


def test_reasons_name_what_became_of_a_node() -> None:
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["n", 8])
    size = g.node("Shape", x)
    back = g.node("Transpose", g.node("Transpose", x, perm=[1, 0]), perm=[1, 0])
    same = g.node("Identity", back)
    dead, first, second = g.node("Exp", x), g.node("Exp", same), g.node("Sin", x)
    folded = g.node("Add", g.constant([1.0]), g.constant([2.0]))
    total = g.node("Add", first, second)
    scaled = g.node("Mul", total, folded)
    y = g.node("Reshape", scaled, size)
    origins = watched(MemoryModel("m.onnx", g.model({"y": y}).SerializeToString()), "cpu")
    by_name = {f"{n.name}_out": n for n in origins.nodes}
    assert origins.why(by_name[size]).startswith("known when compiling: [n, 8]")
    assert origins.why(by_name[back]) == "alias of the argument 'x'"
    assert origins.why(by_name[same]) == "alias of 'Transpose_2'"
    assert origins.why(by_name[dead]) == "nothing that is left reads its result"
    kernels = origins.kernels_of(by_name[first])
    assert len(kernels) == 1
    for name in (second, total, scaled, folded):
        assert origins.kernels_of(by_name[name]) == kernels, name


def test_names_survive_a_text() -> None:
    """Several nodes of one operation, and names that need escapes, pass through aliases."""
    context = StrataContext.with_dialects()
    text = """builtin.module {
      strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
        %y = graph.exp %x : f32[n] loc(#both)
        %z = graph.exp %y : f32[n] loc("a plain one")
        strata.return %z
      }
    }
    #first = loc("a \\\\ \\22 b")
    #both = loc(fused[#first, "second"])
    """.replace("    #", "#")
    module = parse_module(text, context, Path("m.mlir"))
    printed = format_module(module)
    again = parse_module(printed, context, Path("again.mlir"))
    assert format_module(again) == printed
    names = [location_names(op) for op in again.walk() if op.name == "graph.exp"]
    assert names == [('a \\ " b', "second"), ("a plain one",)]
    filecheck("""// CHECK: graph.exp %x : f32[n] loc(#loc2)
                 // CHECK: #loc0 = loc("a
                 // CHECK: #loc1 = loc("second")
                 // CHECK: #loc2 = loc(fused[#loc0, #loc1])""", printed)


def test_a_location_that_names_itself_is_an_error() -> None:
    text = "builtin.module {} loc(#a)\n#a = loc(fused[#a])\n"
    with pytest.raises(StrataError):
        parse_module(text, StrataContext.with_dialects(), Path("m.mlir"))


def test_rewrites_are_events() -> None:
    """A listener hears of each rewrite: its rule, what goes, and what stands for it."""
    text = """builtin.module {
      strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
        %a = graph.neg %x : f32[n] loc("a")
        %b = graph.neg %a : f32[n] loc("b")
        strata.return %b
      }
    }"""
    context, heard = StrataContext.with_dialects(), list[Rewrite]()
    module = parse_module(text, context, Path("m.mlir"))
    context.observers = (heard.append,)

    def double_negation(op: NegOp, at: Rewriter) -> SSAValue | None:
        inner = op.x.owner
        return at(AbsOp, inner.x) if isinstance(inner, NegOp) else None  # wrong, but a rewrite

    rewrite(module, {NegOp: [double_negation]}, context)
    assert [(e.rule, len(e.old), len(e.new)) for e in heard] == [
        ("double_negation", 2, 1), (UNUSED, 1, 0)]
    [made] = [op for op in module.walk() if isinstance(op, AbsOp)]
    assert location_names(made) == ("b", "a")
