"""The instructions of a cubin (SASS), printed by the `nvdisasm` in Triton's wheel."""

from __future__ import annotations

import subprocess
import tempfile

from targets.cuda.build.compile import NVIDIA, Binary, backends
from targets.cuda.errors import CudaError

_SECONDS = 60


def disassembled(binary: Binary) -> str:
    """The SASS of a kernel, in which comments give the lines of its Triton source.

    Raises CudaError if the wheel lacks `nvdisasm`, or if that tool cannot read the cubin.
    """
    tool = backends() / NVIDIA.folder / "bin" / "nvdisasm"
    text = _printed(str(tool), binary.cubin) if tool.exists() else ""
    if not text:
        raise CudaError(f"kernel @{binary.entry} has no SASS: the installed Triton brings no "
                        "nvdisasm that reads its cubin; install a wheel that does, or stop at PTX")
    return text


def _printed(tool: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "--print-code", "--print-line-info-inline", file.name],
                              capture_output=True, text=True, check=False, timeout=_SECONDS).stdout
