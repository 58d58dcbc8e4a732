"""From Triton source to assembly and code: in parallel processes, cached on disk, without a GPU.

The architecture selects one of Triton's back ends, which emit PTX and cubins for NVIDIA GPUs, and
assembly and code objects for AMD GPUs.

Results are keyed by everything they depend on: the source without comments and without the kernel's
name, the argument facts, options, architecture and Triton's version. Equal kernels compile once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from targets.cuda.build.source import KernelSource
from targets.cuda.build.worker import Request, Worker, worker
from targets.cuda.errors import CudaError
from targets.cuda.machine import is_nvidia, machine_of
from targets.cuda.runtime.tensor_maps import Descriptor
from targets.kept import KeptFiles
from targets.origins import without_comments

_FORMAT = 3  # part of every key: raise it when the meaning of the files changes


@dataclass(frozen=True)
class Toolchain:
    """A back end of Triton: its name, its folder in the wheel, and the suffixes of its results."""

    backend: str
    folder: str
    assembly: str
    code: str


NVIDIA = Toolchain("cuda", "nvidia", "ptx", "cubin")
AMD = Toolchain("hip", "amd", "amdgcn", "hsaco")


@dataclass(frozen=True)
class CompileOptions:
    """What kernels are compiled for.

    `cache`: the folder of compiled kernels; None for none. `processes`: how many compile at a time.
    `fp_fusion`: whether products and sums may become fused multiply-adds.
    """

    arch: str = "sm_90"
    cache: Path | None = None
    processes: int | None = None
    fp_fusion: bool = True
    lines: bool = True
    """Whether code has its assembly and the lines of its source, which profilers show."""
    report: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)
    """Called with the number of kernels compiled so far, and the number of all."""

    @property
    def toolchain(self) -> Toolchain:
        return NVIDIA if is_nvidia(self.arch) else AMD

    @property
    def gpu(self) -> tuple[str, int | str, int]:
        """Triton's description of a target: back end, architecture, and width of a warp."""
        number = int(self.arch.removeprefix("sm_")) if is_nvidia(self.arch) else self.arch
        return self.toolchain.backend, number, machine_of(self.arch).warp


@dataclass(frozen=True)
class Job:
    """A kernel to compile. `divisible`: positions of parameters that are multiples of 16."""

    source: KernelSource
    divisible: tuple[int, ...]


@dataclass(frozen=True)
class Binary:
    """A compiled kernel.

    `parameters`: the width in bytes of each kernel parameter, read from the PTX; Triton appends
    pointers to scratch memory. Unknown (empty) for AMD.
    """

    entry: str
    assembly: str
    code: bytes
    shared: int
    warps: int
    parameters: tuple[int, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()
    """The descriptors of buffers that are passed as tensor maps."""

    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """All that launches need besides the code, as JSON can represent it."""
        return {"entry": self.entry, "shared": self.shared, "warps": self.warps,
                "parameters": self.parameters, "descriptors": [
                    [d.place, d.box, d.element, d.swizzle] for d in self.descriptors]}

    @staticmethod
    def read(facts: Mapping[str, Any], code: bytes) -> Binary:
        """The kernel that `facts` describes, without its assembly."""
        return Binary(
            str(facts["entry"]), "", code, int(facts["shared"]), int(facts["warps"]),
            tuple(map(int, facts["parameters"])),
            tuple(Descriptor(int(place), tuple(map(int, box)), int(element), int(swizzle))
                  for place, box, element, swizzle in facts["descriptors"]))

    @property
    def ptx(self) -> str:
        """The assembly of an NVIDIA GPU."""
        return self.assembly

    @property
    def cubin(self) -> bytes:
        """The code of an NVIDIA GPU."""
        return self.code


def compile_kernels(
    jobs: Sequence[Job], options: CompileOptions, compiler: Worker | None = None
) -> list[Binary]:
    """Compile all jobs, each distinct one once. `compiler`: a worker to use; else a temporary one.

    Raises CudaError if Triton or its back end is missing, or, naming the kernel, if Triton rejects
    one.
    """
    triton_version()
    check_toolchain(options.toolchain)
    keys = [name_of(job, options) for job in jobs]
    distinct = dict(zip(keys, jobs, strict=True))
    kept = KeptFiles(None if options.cache is None else str(options.cache), ".kernel")
    packed = {key: kept.get(key) for key in distinct}
    missing = {key: distinct[key] for key, found in packed.items() if found is None}
    made = _compiled(missing, options, compiler, kept) if missing else {}
    found = {key: _binary(made[key] if content is None else content, options.toolchain)
             for key, content in packed.items()}
    return [found[key] for key in keys]


def _compiled(
    jobs: Mapping[str, Job], options: CompileOptions, compiler: Worker | None, kept: KeptFiles
) -> dict[str, bytes]:
    """Compile the jobs and keep the results. Raises CudaError."""
    if compiler is not None:
        return _run_jobs(jobs, options, compiler, kept)
    with closing(worker()) as own:
        return _run_jobs(jobs, options, own, kept)


def name_of(job: Job, options: CompileOptions) -> str:
    """The name of a kernel's code, which equal kernels share. Raises CudaError without Triton."""
    source = job.source
    code = without_comments(source.text)
    code = re.sub(rf"^def {re.escape(source.name)}\(", "def kernel(", code, flags=re.MULTILINE)
    facts = [_FORMAT, triton_version(), code, source.signature, job.divisible, source.warps,
             source.stages, source.registers, options.arch, options.fp_fusion, options.lines]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


@cache
def triton_version() -> str:
    """The installed Triton's version. Raises CudaError if there is none."""
    try:
        return version("triton")
    except PackageNotFoundError:
        raise CudaError("the CUDA target compiles with Triton, which is not installed: "
                        "pip install 'triton>=3.6,<3.10'") from None


def backends() -> Path:
    """The folder of Triton's back ends."""
    spec = find_spec("triton")
    return Path("" if spec is None or spec.origin is None else spec.origin).parent / "backends"


def check_toolchain(toolchain: Toolchain) -> None:
    """Raises CudaError if the installed Triton lacks the back end."""
    if not (backends() / toolchain.folder / "compiler.py").is_file():
        raise CudaError(f"Triton {triton_version()} is installed without its back end "
                        f"'{toolchain.folder}': install a wheel that has it, "
                        "pip install 'triton>=3.6,<3.10'")


# ---------------------------------------------------------------------- processes
def _run_jobs(
    jobs: Mapping[str, Job], options: CompileOptions, compiler: Worker, kept: KeptFiles
) -> dict[str, bytes]:
    """Compile kernels in the worker's folder, and keep each result as soon as it is ready.

    Raises CudaError naming the kernels that Triton rejects.
    """
    folder = compiler.folder
    ordered = sorted(jobs.items(), key=lambda item: _effort(item[1]), reverse=True)
    requests = [_request(folder, folder / key, job, options) for key, job in ordered]
    made: dict[str, bytes] = {}
    count = itertools.count(1)

    def finished(job: int, error: str) -> None:
        key, _ = ordered[job]
        if not error:
            made[key] = _packed(folder / key, options.toolchain)
            kept.put(key, made[key])
        if options.report is not None:
            options.report(next(count), len(ordered))

    errors = compiler.compile(requests, options.processes or len(os.sched_getaffinity(0)),
                              finished)
    refused = [f"Triton cannot compile kernel @{job.source.name}: {error}"
               for (_, job), error in zip(ordered, errors, strict=True) if error]
    kept.trim(made)
    if refused:
        raise CudaError("\n".join(refused))
    return made


def _effort(job: Job) -> tuple[int, int]:
    """An estimate of a kernel's compile time, so that the slowest are started first."""
    products = sum(job.source.text.count(name) for name in ("tl.dot(", "warpgroup_mma("))
    return products, len(job.source.text)


def _request(scratch: Path, results: Path, job: Job, options: CompileOptions) -> Request:
    """A kernel as a request to the worker, with its source in a file."""
    source = scratch / f"{results.name}.py"
    source.write_text(job.source.text)
    return {
        "source": str(source), "name": job.source.name, "signature": job.source.signature,
        "divisible": job.divisible, "warps": job.source.warps, "stages": job.source.stages,
        "registers": job.source.registers, "gpu": options.gpu,
        "levels": (options.toolchain.assembly, options.toolchain.code),
        "fp_fusion": options.fp_fusion, "lines": options.lines, "results": str(results)}


# ---------------------------------------------------------------------- results
def _packed(path: Path, toolchain: Toolchain) -> bytes:
    """The worker's results for a kernel in one piece: facts and assembly, then the code. Removes
    the worker's files."""
    facts, assembly, code = [path.with_suffix(f".{suffix}") for suffix in (
        "json", toolchain.assembly, toolchain.code)]
    head = json.dumps([json.loads(facts.read_text()), assembly.read_text()]).encode()
    content = b"%d\n%b%b" % (len(head), head, code.read_bytes())
    for file in (facts, assembly, code):
        file.unlink()
    return content


def _binary(packed: bytes, toolchain: Toolchain) -> Binary:
    size, _, rest = packed.partition(b"\n")
    facts, assembly = json.loads(rest[: int(size)])
    code = rest[int(size):]
    widths = parameter_widths(assembly) if toolchain is NVIDIA else ()
    descriptors = tuple(Descriptor.of(place, of) for place, of in facts["descriptors"])
    return Binary(facts["entry"], assembly, code, facts["shared"], facts["warps"], widths,
                  descriptors)


_ENTRY = re.compile(r"\.visible \.entry \w+\((.*?)\)", re.DOTALL)
_WIDTH = re.compile(r"\.param\s+(?:\.align \d+ )?\.[a-z](\d+)\s[^,\[]*(?:\[(\d+)\])?")


def parameter_widths(ptx: str) -> tuple[int, ...]:
    """The widths in bytes of a kernel's parameters, in order."""
    entry = _ENTRY.search(ptx)
    assert entry is not None, "PTX of a kernel has an entry"
    return tuple(int(bits) // 8 * int(count or 1) for bits, count in _WIDTH.findall(entry[1]))


@dataclass(frozen=True)
class Resources:
    """The resources of one thread of a kernel: registers, and bytes of local memory (spills)."""

    registers: int
    local: int


_STATED = re.compile(r"^\s*\.(vgpr_count|private_segment_fixed_size):\s*(\d+)", re.MULTILINE)


def resources(binary: Binary) -> Resources | None:
    """The resources: for AMD's GPUs those that the assembly states, for NVIDIA's what the
    `cuobjdump` in Triton's wheel reads; None without that tool."""
    if ".amdgcn_target" in binary.assembly:
        stated = {name: int(number) for name, number in _STATED.findall(binary.assembly)}
        return Resources(stated["vgpr_count"], stated["private_segment_fixed_size"])
    tool = backends() / NVIDIA.folder / "bin" / "cuobjdump"
    if not tool.exists():
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.cubin)
        file.flush()
        done = subprocess.run([str(tool), "--dump-resource-usage", file.name],
                              capture_output=True, text=True, check=False)
    found = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", done.stdout))
    if not found:
        return None
    return Resources(int(found["REG"]), int(found["STACK"]) + int(found["LOCAL"]))
