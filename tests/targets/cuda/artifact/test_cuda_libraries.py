"""Models as libraries for GPUs: what they ask of the driver; and on a GPU, what they compute."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.programs.library import write_library
from targets.cuda.planning.shipping import shipped
from targets.cuda.target import compile_options
from targets.library_file import read_facts
from tests import processes
from tests.targets.cpu.artifact.shipped import needs_tools

pytestmark = [needs_tools, pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no C compiler")]
pytest.importorskip("triton")
HERE = Path(__file__).parent
NET = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 24] x) => (float[n, 7] y, float[n, 24] z)
<float[24, 7] w = {FIRST}> {
    a = MatMul(x, w)  y = Softmax(a)  z = Exp(x)
}
""".replace("FIRST", ", ".join(f"{k % 7 - 3}.25" for k in range(168)))
COPIES = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[3, 5] x) => (float[3, 5] y, float[3, 5] z) { y = Identity(x)  z = Relu(x) }
"""
LATE = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[3, 5] x) => (int64[2, m] y) { y = NonZero(x) }
"""


def written(text: str, folder: Path, *archs: str, suffix: str = ".so") -> Path:
    """A library for GPUs of these architectures."""
    path = folder / f"net{suffix}"
    write_library([Compiler(model_of(onnx.parser.parse_model(text)), CompileOptions(
        target="cuda", features=arch)) for arch in archs], path, "net", None)
    return path


def parts_of(text: str) -> Any:
    """What a library for Hopper is made of."""
    compilation = Compiler(model_of(onnx.parser.parse_model(text)),
                           CompileOptions(target="cuda", features="sm_90"))
    state = compilation.prepare()
    return shipped(state.module, state.context.weights,
                   compile_options(compilation.options.target_options()), "cuda")


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


class FakeGpu:
    """A driver that writes down what it is asked."""

    def __init__(self, folder: Path, *flags: str):
        self.folder, self.log = folder, folder / "log.txt"
        done = processes.run(
            ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags,
             "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1"),
             str(HERE / "fake_cuda.c")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def run(
        self, library: Path, inputs: Sequence[np.ndarray[Any, Any]],
        widths: Mapping[str, Sequence[int]], **said: str,
    ) -> tuple[int, str]:
        """Run a library in a process of its own. Returns its status and what it wrote."""
        self.log.write_text("")
        np.savez(self.folder / "in.npz", *inputs)
        known = "".join(f"{k}:{','.join(map(str, v))};" for k, v in widths.items())
        done = processes.run(
            [sys.executable, str(HERE / "use_library.py"), str(library), "net",
             str(self.folder / "in.npz"), str(self.folder / "out.npz")],
            capture_output=True, text=True, env={
                **os.environ, "LD_LIBRARY_PATH": str(self.folder), "FAKE_CUDA": str(self.log),
                "FAKE_WIDTHS": known, "FAKE_ARCH": "90", **said})
        return done.returncode, done.stdout + done.stderr

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]


@pytest.fixture
def gpu(tmp_path: Path) -> FakeGpu:
    return FakeGpu(tmp_path)


@pytest.mark.parametrize("rows", [16, 5, 1])
def test_launches_are_those_of_the_plan(rows: int, gpu: FakeGpu, tmp_path: Path) -> None:
    library, parts = written(NET, tmp_path, "sm_90"), parts_of(NET)
    widths = {c.binary.entry: c.binary.parameters for c in parts.code.variants.values()}
    status, text = gpu.run(library, [numbers(rows, 24)], widths)
    assert status == 0, text
    launches = [line for line in gpu.lines if line[0] == "launch"]
    steps = [s for s in parts.plan.steps if hasattr(s, "kernel")]
    [symbol] = {s for step in steps for s in step.symbols}
    steps = [s for s in steps if s.happens({symbol: rows})]
    own = [launches[k: k + len(steps)] for k in range(0, len(launches), len(steps))]
    assert len(own) == 3  # the first run, the graph, other memory
    for run in own:
        for (_, entry, programs, threads, shared, *rest), step in zip(run, steps, strict=True):
            values = step.size_values({symbol: rows})
            source, binary = next(
                (c.source, c.binary) for v, c in parts.code.variants.items()
                if v[0] is step.kernel and c.binary.entry == entry)
            assert int(programs) == source.programs(step.extents(values), 7)
            assert (int(threads), int(shared)) == (32 * binary.warps, binary.shared)
            count = len(step.buffers)
            assert [int(v) for v in rest[1 + count: 1 + count + len(values)]] == [
                *values.values()]
            assert all(int(address) % 16 == 0 for address in rest[1: 1 + count])
    kinds = [line[0] for line in gpu.lines]
    assert kinds.count("graph") == 2 and kinds.count("drop") == 1
    assert kinds.count("allocate") == kinds.count("free") + 2  # inputs are the program's own
    assert kinds.count("module") == kinds.count("unload") == len(parts.code.cubins)


def test_copies_and_constants(gpu: FakeGpu, tmp_path: Path) -> None:
    library, parts = written(COPIES, tmp_path, "sm_90"), parts_of(COPIES)
    status, text = gpu.run(library, [numbers(3, 5)], {})
    assert status == 0, text
    copies = [line for line in gpu.lines if line[0] == "copy"]
    assert len(copies) == 3 * sum(not hasattr(s, "kernel") for s in parts.plan.steps)
    assert all(line[3] == "60" for line in copies)


def test_a_library_for_several_architectures(gpu: FakeGpu, tmp_path: Path) -> None:
    library = written(NET, tmp_path, "sm_80", "sm_90")
    facts = read_facts(str(library))
    assert facts["variants"] == ["sm_80", "sm_90"] and facts["target"] == "cuda"
    for arch, fits in (("80", True), ("86", True), ("90", True), ("75", False), ("93", False)):
        status, text = gpu.run(library, [numbers(5, 24)], {}, FAKE_ARCH=arch)
        assert (status == 0) == fits, text
        assert fits or "13: the processor lacks instructions" in text


def test_a_state_is_of_the_context_that_is_current(gpu: FakeGpu, tmp_path: Path) -> None:
    library = written(NET, tmp_path, "sm_90")
    status, text = gpu.run(library, [numbers(5, 24)], {}, FAKE_DEVICE="3")
    assert status == 0, text
    kinds = [line[0] for line in gpu.lines]
    assert ["device", "3"] in gpu.lines and "retain" not in kinds and "release" not in kinds
    assert gpu.run(library, [numbers(5, 24)], {})[0] == 0
    kinds = [line[0] for line in gpu.lines]
    assert "device" not in kinds and kinds.count("retain") == kinds.count("release") == 1


def test_damaged_kernels_are_refused(gpu: FakeGpu, tmp_path: Path) -> None:
    library, packed = written(NET, tmp_path, "sm_90"), parts_of(NET).code.packed
    content = bytearray(library.read_bytes())
    start = content.index(packed)
    for place in range(start, start + len(packed), len(packed) // 7):
        damaged = bytearray(content)
        damaged[place] ^= 4
        library.write_bytes(damaged)
        status, text = gpu.run(library, [numbers(5, 24)], {})
        assert status != 0 and "17: the GPU" in text, text


@pytest.mark.parametrize(("function", "message"), [
    ("cuMemAlloc_v2", "there is not enough memory"),
    ("cuLaunchKernel", "failed on the GPU: CUDA_ERROR_OUT_OF_MEMORY (2)"),
    ("cuGraphCreate", "making a graph failed on the GPU"),
    ("cuGraphAddKernelNode", "failed on the GPU: CUDA_ERROR_OUT_OF_MEMORY (2)"),
    ("cuStreamSynchronize", "failed on the GPU"), ("cuModuleLoadData", "not enough memory")])
def test_errors_of_the_driver_are_statuses(
    function: str, message: str, gpu: FakeGpu, tmp_path: Path
) -> None:
    status, text = gpu.run(written(NET, tmp_path, "sm_90"), [numbers(5, 24)], {},
                           FAKE_FAILS=function)
    assert status != 0 and message in text


def test_without_a_driver_there_is_no_state(gpu: FakeGpu, tmp_path: Path) -> None:
    library = written(NET, tmp_path, "sm_90")
    needed = processes.run(["objdump", "-p", str(library)], capture_output=True, text=True).stdout
    libraries = [line.split()[1] for line in needed.splitlines() if "NEEDED" in line]
    assert not [name for name in libraries if not name.startswith(("libc.", "libm.", "libdl."))]
    (tmp_path / "libcuda.so.1").write_bytes(b"nothing")
    status, text = gpu.run(library, [numbers(5, 24)], {})
    assert status != 0 and "13: the processor lacks instructions" in text


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = written(NET, tmp_path, "sm_90").read_bytes()
    assert written(NET, tmp_path / "again", "sm_90").read_bytes() == first


def test_what_decides_while_it_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StrataError, match="this one decides while it runs") as error:
        written(LATE, tmp_path, "sm_90")
    assert "1 size" in str(error.value)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [16, 5, 1])
def test_on_a_gpu_it_computes_what_this_process_computes(rows: int, tmp_path: Path) -> None:
    from targets.cuda.machine import device_machine
    from tests.targets.cuda.artifact.use_library import run

    x = numbers(rows, 24)
    exe = compiler.compile(onnx.parser.parse_model(NET), target="cuda")
    library = written(NET, tmp_path, device_machine().arch)
    for found, wanted in zip(run(str(library), "net", [x])[0], exe(x), strict=True):
        assert found.tobytes() == np.asarray(wanted).tobytes()
