"""Every strategy is right: samples and models under each, on both targets, and what each may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from xdsl.dialects.builtin import ModuleOp

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.io.signature import signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.steps import PIPELINE
from compiler.pipeline.strategies import (
    BLOCK,
    GROUPS,
    ONE_LAUNCH,
    PER_OP,
    STRATEGIES,
    WHOLE_GRAPH,
    groups_of,
    steps_of,
)
from dialects.block import KernelOp as BlockKernel
from dialects.graph.collective import CollectiveOp
from dialects.host.interpret import interpret_host
from dialects.loop import CallOp, KernelOp
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.text.syntax import location, location_name
from dialects.walking import walked
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext
from targets.base import TargetOptions, find_target
from targets.cuda.build.compile import CompileOptions as CudaOptions
from targets.cuda.build.compile import Job, compile_kernels
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.reference.interpret import interpret
from tests.lowering import assert_close, lower, without_subnormals
from tests.models import tiny_bert, tiny_cnn
from tests.models.test_left_out_passes import MODELS, Model
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES

ALL = [*SAMPLES, *PIPELINE_SAMPLES]
LESS = (PER_OP, BLOCK)
FIRST = list({s.op: s for s in reversed(SAMPLES) if s.operands}.values())
"""One row of each operation."""
STEPS = {"quantized": 0.051}
"""By how much results may differ: a quantization step."""
VIEWS_AND_SIZES = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Shape", "Range", "Slice",
                   "Concat", "Identity"}
"""Types of which a node may need no kernel."""
FEW = ("matmul", "softmax", "layer_norm", "batch_norm", "conv")

each_strategy = pytest.mark.parametrize("strategy", LESS)
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def steps(strategy: str) -> list[str]:
    return [s.spec for s in steps_of(PIPELINE, groups_of(strategy))]


def lowered(
    sample: Sample, symbolic: bool, target: str, strategy: str,
    options: TargetOptions = TargetOptions(),  # noqa: B008 (it is frozen)
) -> tuple[ModuleOp, WeightStore, list[Array], list[Array]]:
    """The module at block level, its weights, inputs, and what it must compute."""
    module, arrays, context = build_module(sample, symbolic)
    for op in walked(module):
        op.location = location("node")
    inputs = without_subnormals(arrays)
    expected = interpret(module, context.weights, inputs)
    strata: StrataContext = find_target(target).bind(options).context(context.weights)
    list(lower(module, strata, steps(strategy)))
    return module, strata.weights, inputs, expected


# ---------------------------------------------------------------------- samples
def check_sample(sample: Sample, symbolic: bool, strategy: str) -> None:
    options = TargetOptions(one_launch=ONE_LAUNCH in groups_of(strategy))
    module, weights, inputs, expected = lowered(sample, symbolic, "cpu", strategy, options)
    model = find_target("cpu").bind(options).running.load(module, weights)
    for time in ("at first", "again"):
        assert_close(model.run(inputs), expected, sample.tolerance or 0,
                     f"{sample.label}, {strategy}, {time}")


@each_strategy
def test_some_samples_on_the_cpu(strategy: str) -> None:
    for number, sample in enumerate(FIRST[LESS.index(strategy)::4]):
        if find_spec("torch") or not issubclass(sample.op, CollectiveOp):
            check_sample(sample, bool(number % 2), strategy)


@pytest.mark.slow
@each_strategy
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("sample", ALL, ids=[f"{k}-{s.label}" for k, s in enumerate(ALL)])
def test_samples_on_the_cpu(sample: Sample, symbolic: bool, strategy: str) -> None:
    check_sample(sample, symbolic, strategy)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@needs_triton
@each_strategy
@pytest.mark.parametrize("samples", [
    [s for s in FIRST if s.op.name.removeprefix("graph.") in FEW],
    pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "all"])
def test_samples_in_tritons_interpreter(
    samples: Sequence[Sample], strategy: str, interpreter: Interpreter
) -> None:
    for sample in samples:
        module, weights, inputs, expected = lowered(
            sample, True, "cuda", strategy, TargetOptions(interpret=True))
        assert_close(interpret_host(module, inputs, weights, interpreter.run), expected,
                     sample.tolerance or 0, f"{sample.label}, {strategy}")


@needs_triton
@each_strategy
@pytest.mark.parametrize("samples", [
    [s for s in FIRST if s.op.name in ("graph.matmul", "graph.softmax")],
    pytest.param(FIRST, marks=pytest.mark.slow)], ids=["few", "all"])
def test_kernels_compile_to_cubins(samples: Sequence[Sample], strategy: str) -> None:
    jobs = [Job(emit_kernel(op), tuple(range(len(op.buffers))))
            for sample in samples for op in lowered(sample, False, "cuda", strategy)[0].body.ops
            if isinstance(op, BlockKernel)]
    binaries = compile_kernels(jobs, CudaOptions("sm_90"))
    assert all(b.cubin[:4] == b"\x7fELF" for b in binaries)


# ---------------------------------------------------------------------- models
def outputs_of(model: Model, target: str = "cpu", **options: Any) -> list[Array]:
    proto, inputs = model
    memory = MemoryModel("model.onnx", proto.SerializeToString())
    exe = compiler.compile(memory, target=target, cache="off", interpret=target == "cuda",
                           **options)
    rng = np.random.default_rng(1)
    again = {n: rng.permuted(a, axis=-1) if a.ndim and a.dtype.kind == "f" else a
             for n, a in inputs.items()}
    return [*exe(**again), *exe(**again)]


def check_model(
    model: Model, target: str, expected: Sequence[Array], step: float, **options: Any
) -> None:
    """`step`: by how much quantized results may differ."""
    for got, want in zip(outputs_of(model, target, **options), expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), options
        tolerance = 5e-3 if want.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance,
            atol=max(step, tolerance * np.abs(want).max()), err_msg=str(options))


@pytest.mark.parametrize("name", ["quantized", "branches", "tiny_bert-open", "tiny_lstm"])
def test_models(name: str) -> None:
    model, step = MODELS[name](), STEPS.get(name, 0.0)
    expected = outputs_of(model)
    for strategy in LESS:
        check_model(model, "cpu", expected, step, strategy=strategy)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_group_left_out_and_added(name: str) -> None:
    model, step = MODELS[name](), STEPS.get(name, 0.0)
    expected = outputs_of(model)
    for group in GROUPS:
        check_model(model, "cpu", expected, step, without_groups=[group])
        check_model(model, "cpu", expected, step, strategy=PER_OP, with_groups=[group])
    for strategy in LESS:
        check_model(model, "cpu", expected, step, strategy=strategy, threads=2)


@pytest.mark.parametrize("name", ["mtcnn_pnet", *(pytest.param(
    name, marks=pytest.mark.slow) for name in ("magika", "ppocr_v2_cls"))])
def test_public_models(zoo_model: Callable[[str], Path], name: str) -> None:
    """A sample; `benchmarks/zoo/run.py --columns strategies` runs them all beside onnxruntime."""
    path = str(zoo_model(name))
    exes = {s: compiler.compile(path, cache="off", strategy=s) for s in STRATEGIES}
    inputs = signature_of(Compiler(path, CompileOptions()).read().module).random(3, {})
    expected = exes[WHOLE_GRAPH](**inputs)
    for strategy in LESS:
        for got, want in zip(exes[strategy](**inputs), expected, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), strategy
            np.testing.assert_allclose(got, want, rtol=1e-3, err_msg=strategy,
                                       atol=1e-4 * max(np.abs(want).max(initial=0), 1))


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "quantized", "attention", "branches", "tiny_cnn"])
def test_models_in_tritons_interpreter(name: str) -> None:
    model, step = MODELS[name](), STEPS.get(name, 0.0)
    expected = outputs_of(model)
    for strategy in LESS:
        check_model(model, "cuda", expected, step, strategy=strategy)


# ---------------------------------------------------------------------- what each strategy may do
def loop_level(tiny: Any, strategy: str, target: str) -> ModuleOp:
    model = MemoryModel("m.onnx", tiny.make_model(tiny.CASES[0]).SerializeToString())
    return Compiler(model, CompileOptions(target=target, strategy=strategy)).lower("loop").module


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("tiny", [tiny_bert, tiny_cnn])
def test_a_kernel_computes_one_node(tiny: Any, target: str) -> None:
    """Each kernel holds parts of one node, and every node has a launch but views and sizes."""
    module, graph = loop_level(tiny, PER_OP, target), tiny.make_model(tiny.CASES[0]).graph
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    assert all(len({location_name(n) for n in kernel.nests}) == 1 for kernel in kernels)
    launched = {location_name(op) for op in module.walk() if isinstance(op, CallOp)}
    nodes = {n.name or f"{n.op_type}_{k}": n.op_type for k, n in enumerate(graph.node)}
    assert launched <= nodes.keys()
    assert {nodes[name] for name in nodes.keys() - launched} <= VIEWS_AND_SIZES


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("tiny", [tiny_bert, tiny_cnn])
def test_a_block_has_at_most_one_product(tiny: Any, target: str) -> None:
    counts: dict[str, int] = {}
    for strategy in STRATEGIES:
        module = loop_level(tiny, strategy, target)
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        counts[strategy] = sum(isinstance(op, CallOp) for op in module.walk())
        if strategy != WHOLE_GRAPH:
            assert all(sum(map(is_contraction, k.nests)) <= 1 for k in kernels)
    assert counts[PER_OP] > counts[BLOCK]


ATTENTION = {
    "node": """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    m (float[2, 96, 128] q, float[2, 96, 128] k, float[2, 96, 128] v) => (float[2, 96, 128] y) {
      y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
    }""",
    "nodes": """<ir_version: 10, opset_import: ["": 21]>
    m (float[2, 96, 64] q, float[2, 64, 96] k, float[2, 96, 64] v) => (float[2, 96, 64] y) {
      s = MatMul(q, k)
      w = Softmax(s)
      y = MatMul(w, v)
    }"""}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(("name", "products"), [("node", [2]), ("nodes", [0, 1, 1])])
def test_attention_of_one_node_is_one_kernel(name: str, products: list[int], target: str) -> None:
    """As that of eager frameworks is; several nodes are only chained in the whole graph."""
    model = onnx.parser.parse_model(ATTENTION[name])
    memory = MemoryModel("m.onnx", model.SerializeToString())
    for strategy in STRATEGIES:
        module = Compiler(memory, CompileOptions(target=target, strategy=strategy)).lower(
            "loop").module
        found = [sum(map(is_contraction, op.nests)) for op in module.body.block.ops
                 if isinstance(op, KernelOp)]
        assert sorted(found) == (products if strategy != WHOLE_GRAPH else [2])
    rng = np.random.default_rng(2)
    inputs = {i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim],
                                          np.float32) for i in model.graph.input}
    expected = outputs_of((model, inputs), target)
    for strategy in LESS:
        check_model((model, inputs), target, expected, 0.0, strategy=strategy)


def test_the_default_is_the_whole_pipeline() -> None:
    assert steps_of(PIPELINE, CompileOptions().groups) == PIPELINE
    assert {s.group for s in PIPELINE} - {""} == GROUPS.keys()
    assert all(not s.needed or s.apart or not s.group for s in PIPELINE), "what is needed stays"


@pytest.mark.parametrize(("options", "message"), [
    ({"strategy": "perop"}, "strategy is 'perop', .*\n.*did you mean per-op"),
    ({"strategy": None}, "strategy is None"),
    ({"with_groups": ["fusion"]}, "with_groups has 'fusion', .*\n.*did you mean fuse"),
    ({"without_groups": ["layouts"]}, "without_groups has 'layouts', .*\n.*did you mean layout"),
    ({"with_groups": "fuse"}, "'fuse' is not a list"),
    ({"with_groups": ["fuse"], "without_groups": ["fuse"]}, "both added and left out"),
    ({"strategy": "block", "passes": "graph-dce"}, "a strategy has no effect"),
    ({"strategy": "block", "target": "reference"}, "target reference .*\n.*strategy"),
    ({"strategy": "per-op", "passes": "default,without(loop-winograd)"},
     "names loop-winograd.*\n.*\n.*--with winograd"),
])
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    """The model that is named does not exist: options come first."""
    with pytest.raises(StrataError, match=message):
        compiler.compile("no-such-file.onnx", **options)


# ---------------------------------------------------------------------- PyTorch
@pytest.mark.parametrize(("options", "groups"), [
    ({"strategy": PER_OP}, groups_of(PER_OP)),
    ({"strategy": BLOCK, "with_groups": ["layout"]}, groups_of(BLOCK, ["layout"])),
    ({"without_groups": ["fuse", ONE_LAUNCH]}, groups_of(WHOLE_GRAPH, (), ["fuse", ONE_LAUNCH])),
], ids=["per-op", "added", "left out"])
def test_options_of_torch_compile(
    options: dict[str, Any], groups: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = pytest.importorskip("torch")
    from compiler.torch.backend import strata

    seen: list[CompileOptions] = []
    prepare = Compiler.prepare

    def watched(self: Compiler) -> Any:
        seen.append(self.options)
        return prepare(self)

    monkeypatch.setattr(Compiler, "prepare", watched)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Softmax(-1))
    x = torch.randn(4, 8)
    with torch.no_grad():
        found = torch.compile(model, backend=strata, options={"cache": "off", **options})(x)
        assert torch.allclose(found, model(x), atol=1e-6)
    assert [o.groups for o in seen] == [groups]
