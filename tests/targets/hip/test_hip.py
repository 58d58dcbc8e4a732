"""Kernels for AMD's GPUs: what they compile to, and what is told where they cannot."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from dialects.strata.schedule import parse_schedule
from dialects.strata.weights import WeightStore
from targets.base import TargetError, TargetOptions, find_target
from targets.cuda.build import compile as cuda_compile
from targets.cuda.build.compile import AMD, Binary, CompileOptions, Job, compile_kernels, resources
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.errors import CudaError
from targets.cuda.machine import AMD_MACHINES, is_nvidia, machine_of
from targets.hip.schedules import fitted
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, kernel_of, parse

TARGET = find_target("hip")
FEW = (samples.SOFTMAX, samples.matmul("f16", 64, 64, 32), samples.TRANSPOSE)
OTHERS = ("sm_80", "sm_90", "sm_100")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def compiled(texts: list[str], arch: str) -> list[Binary]:
    kernels = [kernel_of(text) for text in texts]
    options = EmitOptions(ptx=is_nvidia(arch))
    jobs = [Job(emit_kernel(k, options), tuple(range(len(k.buffers)))) for k in kernels]
    return compile_kernels(jobs, CompileOptions(arch))


@needs_triton
def test_samples_become_code_objects() -> None:
    for binary in compiled([*FEW], "gfx942"):
        assert re.search(r"\.amdgcn_target .*gfx942", binary.assembly)
        assert binary.code[:4] == b"\x7fELF"
        assert binary.shared <= machine_of("gfx942").shared
        need = resources(binary)
        assert need is not None and 0 < need.registers <= 512 and need.local == 0
        assert re.search(r"\.vgpr_spill_count: +0\n", binary.assembly)


@needs_triton
def test_products_use_matrix_cores() -> None:
    [binary] = compiled([samples.matmul("f16", 64, 64, 32)], "gfx942")
    assert "v_mfma_f32_" in binary.assembly


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("arch", [*AMD_MACHINES, *OTHERS])
def test_every_sample_compiles(arch: str) -> None:
    assert all(b.code[:4] == b"\x7fELF" for b in compiled([s.text for s in SAMPLES], arch))


@needs_triton
def test_assembly_of_a_module() -> None:
    emission = TARGET.bind(TargetOptions()).emission
    text = emission.emit(parse(samples.SWAP), AMD.assembly)
    assert "gfx942" in text and "s_endpgm" in text
    with pytest.raises(CudaError, match="target hip has no level 'ptx'; it has triton and amdgcn"):
        emission.emit(parse(samples.SWAP), "ptx")


def test_source_has_no_instructions_of_other_machines() -> None:
    module = parse(samples.GELU)
    on_amd = TARGET.bind(TargetOptions(features="gfx942")).emission.emit(module, "triton")
    nvidia = find_target("cuda").bind(TargetOptions(features="sm_90"))
    on_nvidia = nvidia.emission.emit(module, "triton")
    assert "inline_asm" not in on_amd
    assert on_amd != on_nvidia or "quick" not in on_nvidia
    with pytest.raises(TargetError):
        TARGET.bind(TargetOptions(features="gfx90a"))
    assert TARGET.bind(TargetOptions()).tuning.key() is None


def test_schedules_have_as_many_threads_and_a_short_pipeline() -> None:
    machine = machine_of("gfx942")
    schedule = parse_schedule("<grid m tile 64 | dot = 1, warps = 8, stages = 4>")
    assert str(fitted(schedule, machine)) == "<grid m tile 64 | dot = 1, warps = 4, stages = 2>"
    assert fitted(parse_schedule("<| warps = 1>"), machine).given("warps") == 1


def test_facts_of_machines() -> None:
    assert [machine_of(arch).warp for arch in ("sm_80", "sm_90", "gfx942")] == [32, 32, 64]
    assert machine_of("sm_90").tensor_rate == 989 and machine_of("gfx942").tensor_rate == 1307


def test_options_name_an_architecture() -> None:
    parts = TARGET.bind(TargetOptions())
    assert parts.options.features == "gfx942"
    assert parts.facts.programs == 4 * 304
    with pytest.raises(TargetError, match="no architecture 'sm_90'; there are: gfx942"):
        TARGET.bind(TargetOptions(features="sm_90"))
    with pytest.raises(TargetError, match="no CUDA architecture 'gfx942'"):
        find_target("cuda").bind(TargetOptions(features="gfx942"))


def test_running_says_what_to_do() -> None:
    with pytest.raises(TargetError, match="`--interpret` runs the kernels on the CPU"):
        TARGET.bind(TargetOptions()).running.load(
            parse(f"builtin.module {{ {samples.SWAP} }}"), WeightStore())


@needs_triton
def test_a_triton_without_the_back_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda_compile, "backends", lambda: tmp_path)
    with pytest.raises(CudaError, match="without its back end 'amd': install a wheel"):
        compiled([samples.SWAP], "gfx942")
    assert "without its back end 'amd'" in TARGET.report()[0]
