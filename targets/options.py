"""What a user may choose about a target."""

from __future__ import annotations

from pathlib import Path

from dialects.records import dataclass


@dataclass(frozen=True)
class TargetOptions:
    """What a user may choose about a target. The parts of a target are bound to it once.

    `features` selects machine features instead of detecting them: "avx2" or "avx512" on the CPU, a
    compute capability such as "sm_90" on CUDA. `threads`: None means all that the process may use.
    `cache`: the folder of compiled code; None for no cache. `precision`: "f32" keeps IEEE single
    precision; "tf32", "fp16", "bf16" and "fp8" allow products of narrower floats.
    """

    features: str | None = None
    beside: tuple[str, ...] = ()
    """CPU: the feature sets of one library, whose codes read the same packed constants."""
    triple: str | None = None
    """CPU: the architecture and system for which code is made; None for this machine."""
    threads: int | None = None
    cache: Path | None = None
    precision: str = "f32"
    exact: bool = False
    """Round products before they are added, as the definitions of operators do."""
    denormals: str = "flush"
    """CPU: "keep" computes with subnormal floats, "flush" treats them as 0."""
    interpret: bool = False
    """CUDA: run kernels in Triton's interpreter instead of on a device."""
    check: bool | None = None
    """Whether invalid indices and accesses are errors. True: every access is checked. None: indices
    are checked where that costs next to nothing. False: nothing is checked."""
    one_launch: bool = True
    """Whether the whole program is launched at once where the target can do that; else each launch
    is one of its own."""
    library: bool = False
    """Whether kernels may be library calls where those were measured to be faster."""
