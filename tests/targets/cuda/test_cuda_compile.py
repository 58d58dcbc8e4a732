"""Kernels compiled to PTX and cubins, which needs neither a GPU nor torch."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import (
    Binary,
    CompileOptions,
    Job,
    compile_kernels,
    parameter_widths,
    resources,
)
from targets.cuda.build.worker import worker
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.errors import CudaError
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, Sample, kernel_of, parse
from tests.targets.cuda.scalar_kernels import float_kernel, integer_kernel

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def job(text: str, options: EmitOptions | None = None) -> Job:
    kernel = kernel_of(text)
    return Job(emit_kernel(kernel, options), tuple(range(len(kernel.buffers))))


@pytest.fixture(scope="module")
def binaries() -> dict[str, Binary]:
    """The samples that show most of the target, compiled at once."""
    texts = [samples.SOFTMAX, samples.matmul("f16", 64, 64, 32), samples.TRANSPOSE]
    return {b.entry: b for b in compile_kernels([job(x) for x in texts], CompileOptions())}


def test_softmax_reads_memory_in_wide_pieces(binaries: dict[str, Binary]) -> None:
    binary = binaries["softmax"]
    assert binary.cubin[:4] == b"\x7fELF"
    assert ".target sm_90" in binary.ptx and "ld.global.v4" in binary.ptx
    assert "max.NaN.f32" in binary.ptx and "div.rn.f32" in binary.ptx
    assert binary.warps == 4


def test_matmul_uses_tensor_cores_and_asynchronous_copies(binaries: dict[str, Binary]) -> None:
    binary = binaries["matmul_f16"]
    assert "wgmma" in binary.ptx or "mma.sync" in binary.ptx
    assert binary.shared > 0


def test_parameters_are_ours_and_then_pointers_to_scratch(binaries: dict[str, Binary]) -> None:
    widths = binaries["transpose"].parameters
    assert widths[:4] == (8, 8, 4, 4)
    assert set(widths[4:]) <= {8}


def test_the_cubin_says_what_it_needs(binaries: dict[str, Binary]) -> None:
    needed = resources(binaries["softmax"])
    assert needed is not None and 8 <= needed.registers <= 255 and needed.local == 0


def test_a_fact_about_sizes_lets_memory_be_read_asynchronously() -> None:
    text = samples.matmul("f16", 64, 64, 32)
    plain = job(text)
    known = Job(plain.source, (*plain.divisible, len(plain.divisible) + 1))  # 16 divides k
    a, b = compile_kernels([plain, known], CompileOptions())
    assert a.ptx.count("cp.async.cg") < b.ptx.count("cp.async.cg")


def test_equal_kernels_compile_once_and_are_cached(tmp_path: Path) -> None:
    options = CompileOptions(cache=tmp_path)
    renamed = samples.SWAP.replace("@fibonacci", "@again")
    first, second = compile_kernels([job(samples.SWAP), job(renamed)], options)
    assert first == second
    assert [p.suffix for p in tmp_path.iterdir()] == [".kernel"]
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert compile_kernels([job(samples.SWAP)], options) == [first]
    assert all(p.stat().st_mtime == 0 for p in tmp_path.iterdir())  # nothing was written again


def test_a_damaged_or_foreign_kernel_is_compiled_again(tmp_path: Path) -> None:
    options = CompileOptions(cache=tmp_path)
    [expected] = compile_kernels([job(samples.SWAP)], options)
    [path] = tmp_path.iterdir()
    good = path.read_bytes()
    for bad in (b"", good[:40], good[:-1], good[:200] + bytes([good[200] ^ 1]) + good[201:]):
        path.write_bytes(bad)
        [again] = compile_kernels([job(samples.SWAP)], options)
        assert (again.entry, again.parameters) == (expected.entry, expected.parameters)
        assert compile_kernels([job(samples.SWAP)], options) == [again]  # it is kept again
    compile_kernels([job(samples.TRANSPOSE)], options)
    [other] = set(tmp_path.iterdir()) - {path}
    other.replace(path)  # another kernel by this one's name
    [again] = compile_kernels([job(samples.SWAP)], options)
    assert again.entry == expected.entry


def test_what_triton_refuses_is_an_error_that_names_the_kernel() -> None:
    good = job(samples.SWAP).source
    bad = Job(type(good)("bad", (), "@triton.jit\ndef bad(x):\n    tl.no_such(x)\n",
                         (("x", "*fp32"),), 1, 1), (0,))
    with pytest.raises(CudaError, match=r"kernel @bad[\s\S]*no_such"):
        compile_kernels([bad], CompileOptions())


def test_a_process_that_ends_is_an_error_that_says_how() -> None:
    """Others that are compiled at the same time are not lost."""
    good = job(samples.SWAP)
    ends = Job(type(good.source)("ends", (), "import os\nos._exit(7)\n", (("x", "*fp32"),), 1, 1),
               (0,))
    with pytest.raises(CudaError, match="kernel @ends: its process ended with status 7") as error:
        compile_kernels([ends, good], CompileOptions(processes=1))
    assert "fibonacci" not in str(error.value)


def test_requests_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """One worker compiles a kernel while another one, of an earlier request, takes its time."""
    good, options = job(samples.SWAP), CompileOptions(processes=2)
    done = tmp_path / "done"
    text = ("import time\nfrom pathlib import Path\n"
            f"while not Path({str(done)!r}).exists(): time.sleep(0.01)\nraise ValueError('late')\n")
    slow = Job(type(good.source)("slow", (), text, (("x", "*fp32"),), 1, 1), (0,))
    with closing(worker()) as one, ThreadPoolExecutor(1) as thread:
        refused = thread.submit(compile_kernels, [slow], options, one)
        assert compile_kernels([good], options, one)[0].entry == "fibonacci"
        assert not refused.done()
        done.touch()
        with pytest.raises(CudaError, match="kernel @slow: ValueError: late"):
            refused.result(60)


def test_a_worker_that_was_foreseen_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; when it has ended, what it had to do is an error."""
    TARGET.bind(TargetOptions()).building.begin()
    TARGET.bind(TargetOptions()).building.begin()
    first = worker()
    assert worker() is not first
    first.close()
    monkeypatch.setattr("targets.cuda.build.worker._PROGRAM", Path("absent.py"))
    with pytest.raises(CudaError, match=r"ended with status 2\n.*absent\.py"):
        compile_kernels([job(samples.SWAP)], CompileOptions())


def test_ptx_level_and_unknown_architecture() -> None:
    module = parse(samples.SWAP)
    text = TARGET.bind(TargetOptions(features="sm_80")).emission.emit(module, "ptx")
    assert ".target sm_80" in text and ".entry fibonacci" in text
    with pytest.raises(CudaError, match="no CUDA architecture 'sm_1'; there are: sm_80"):
        TARGET.bind(TargetOptions(features="sm_1")).emission.emit(module, "ptx")


def test_sass_wants_a_disassembler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    emission = TARGET.bind(TargetOptions(features="sm_90")).emission
    text = emission.emit(parse(samples.SWAP), "sass")
    assert "// kernel @" in text and "EXIT ;" in text
    monkeypatch.setattr("targets.cuda.build.sass.backends", lambda: tmp_path)
    with pytest.raises(CudaError, match=r"has no SASS.*brings no nvdisasm"):
        emission.emit(parse(samples.SWAP), "sass")


def test_parameter_widths_of_ptx() -> None:
    ptx = """.visible .entry k(
\t.param .u64 .ptr .global .align 1 k_param_0,
\t.param .u32 k_param_1,
\t.param .b64 k_param_2
)"""
    assert parameter_widths(ptx) == (8, 4, 8)


@pytest.mark.slow
def test_every_sample_and_operation_compiles() -> None:
    wide = EmitOptions(wide=True)
    jobs = [*(job(s.text) for s in SAMPLES), *(job(s.text, wide) for s in SAMPLES),
            *(job(float_kernel(e)) for e in ("f32", "f64", "f16", "bf16")),
            *(job(integer_kernel(e)) for e in ("i8", "i16", "i32", "i64"))]
    binaries = compile_kernels(jobs, CompileOptions())
    assert all(b.cubin[:4] == b"\x7fELF" for b in binaries)


def test_samples_cover_every_block_operation() -> None:
    used = {op.name for s in [*SAMPLES, Sample(samples.SWAP)] for op in s.kernel.walk()
            if op.name.startswith("block.")}
    assert used == {"block.kernel", "block.for", "block.yield", "block.load", "block.store",
                    "block.full", "block.map", "block.dot", "block.reduce", "block.index",
                    "block.valid", "block.convert"}
