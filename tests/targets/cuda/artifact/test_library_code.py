"""What a library for GPUs holds beside its constants: code that is needed, once, and short C."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from compiler.cli.described_library import describe_library
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.symbolic.symbol import Symbol
from targets.cpu.artifact.ports import Ports
from targets.cuda.artifact.launches import runtime_of
from targets.cuda.build.compile import CompileOptions as KernelOptions
from targets.cuda.build.compile import compile_kernels
from targets.cuda.planning.program import program_of
from targets.cuda.runtime.planned import HostPlan
from targets.cuda.runtime.variants.variant import job_of_source
from tests import processes
from tests.targets.cpu.artifact.shipped import needs_tools
from tests.targets.cuda.artifact.test_cuda_libraries import FakeGpu, numbers, parts_of, written

pytestmark = needs_tools
pytest.importorskip("triton")


def pyramid(layers: int) -> str:
    """Layers that each halve an image of open sizes, so that each size holds the one before."""
    steps = " ".join(
        f"a{k} = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]>(s{k}, w) "
        f"s{k + 1} = Sigmoid(a{k})" for k in range(layers))
    return f"""
<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 4, h, w] s0) => (float[n, 4, i, j] s{layers})
<float[4, 4, 3, 3] w = {{{", ".join(f"{k % 7 - 3}.25" for k in range(144))}}}> {{ {steps} }}
"""


def test_launches_of_open_sizes_are_those_of_the_plan(tmp_path: Path) -> None:
    """Sizes in which sizes are nested, at values that are no multiples of anything."""
    gpu, text = FakeGpu(tmp_path), pyramid(4)
    library, parts = written(text, tmp_path, "sm_90"), parts_of(text)
    widths = {c.binary.entry: c.binary.parameters for c in parts.code.variants.values()}
    for given in ((2, 33, 47), (1, 16, 1), (3, 1, 130)):
        status, said = gpu.run(library, [numbers(given[0], 4, *given[1:])], widths)
        assert status == 0, said
        sizes = dict(zip(map(Symbol.size, ("n", "h", "w")), given, strict=True))
        steps = [s for s in parts.plan.steps if s.happens(sizes)]
        launches = [line for line in gpu.lines if line[0] == "launch"]
        assert len(launches) == 3 * len(steps)
        for (_, entry, programs, _, _, *rest), step in zip(launches, steps, strict=False):
            values = step.size_values(sizes)
            [source] = {c.source for v, c in parts.code.variants.items()
                        if v[0] is step.kernel and c.binary.entry == entry and not v[1]}
            assert int(programs) == source.programs(step.extents(values), 7)
            count = len(step.buffers)
            assert [int(v) for v in rest[1 + count: 1 + count + len(values)]] == [*values.values()]


def test_sizes_are_computed_once() -> None:
    """Twice the layers need at most three times the divisions in C, although the sizes of each hold
    those of all before it."""
    counts = []
    for layers in (4, 8):
        parts = parts_of(pyramid(layers))
        runtime = runtime_of(parts.plan, parts.code, Ports.of(parts.run_plan).symbols, parts.arch,
                             "cubins")
        counts.append(len(re.findall(r"quotient_of\(", "\n".join(runtime.runs))))
    assert 0 < counts[1] <= 3 * counts[0]


def test_code_has_no_lines_of_sources() -> None:
    code = parts_of(pyramid(1)).code
    assert code.cubins
    for cubin in code.cubins:
        assert b".nv_debug" not in cubin and b".debug_line" not in cubin


@pytest.mark.parametrize(("shape", "result", "body"), [
    ("n, 4, h, w", "n, 4, i, j", "y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(x)"),
    ("n, h, w, 16", "n, 16, h, w", "y = Transpose<perm=[0, 3, 1, 2]>(x)"),
    ("n, h, 3", "n, h, 3", "y = Softmax(x)"), ("n, h, 48", "n, h, 48", "y = Softmax(x)"),
    ("n, m", "m, n", "y = Transpose(x)"), ("n, m", "n, m", "y = Exp(x)")])
def test_code_that_would_be_the_same_is_not_compiled(shape: str, result: str, body: str) -> None:
    """Each size in strides that a variant does not know would not change its code."""
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 17]>
net (float[{shape}] x) => (float[{result}] y) {{ {body} }}""")
    state = Compiler(model_of(model), CompileOptions(target="cuda", features="sm_90")).prepare()
    options = KernelOptions("sm_90", lines=False)
    program = program_of(state.module, options)
    assert isinstance(program.host, HostPlan)
    jobs = [job_of_source((kernel, known, False), program.sources.source(kernel, False))
            for kernel in program.host.kernels
            for size in {s for b in kernel.buffers for e in b.shape[1:] for s in e.symbols}
            if size not in kernel.strides
            for known in (frozenset(kernel.strides), frozenset([size, *kernel.strides]))]
    binaries = compile_kernels(jobs, options)
    for compiled, other in zip(binaries[::2], binaries[1::2], strict=True):
        assert compiled.code == other.code, compiled.entry


def test_libraries_say_what_they_have(tmp_path: Path) -> None:
    """On the command line and to `inspect`."""
    model, library = tmp_path / "net.onnx", tmp_path / "net.so"
    onnx.save(onnx.parser.parse_model(pyramid(1)), str(model))
    done = processes.run(
        [sys.executable, "-m", "compiler", "compile", str(model), "--target", "cuda", "--features",
         "sm_80,sm_90", "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = re.search(r"net.so has (\d+) kernels for sm_80 and (\d+) kernels for sm_90", done.stderr)
    assert said is not None, done.stderr
    lines = describe_library(str(library), as_json=False)
    assert f"{said[1]} kernels for sm_80, {said[2]} kernels for sm_90" in lines
    assert any(line.startswith("made with Triton ") for line in lines)
