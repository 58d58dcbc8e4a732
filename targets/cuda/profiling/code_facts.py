"""What the driver says of the code of a loaded kernel."""

from __future__ import annotations

from collections.abc import Mapping

from targets.cuda.machine import WARP
from targets.cuda.runtime import driver
from targets.cuda.runtime.kernels import PackedLaunch

_STATIC_SHARED, _LOCAL, _REGISTERS = 1, 3, 4  # CUfunction_attribute


def code_facts(launch: object) -> Mapping[str, int]:
    """Registers and spilled bytes of a thread, shared bytes and warps of a program, and how many
    programs there are. Nothing is known of a library's kernels."""
    if not isinstance(launch, PackedLaunch):
        return {}
    function = launch.function
    return {"registers": driver.function_attribute(function, _REGISTERS),
            "spills": driver.function_attribute(function, _LOCAL),
            "shared": driver.function_attribute(function, _STATIC_SHARED) + launch.shared,
            "warps": launch.threads // WARP, "programs": launch.programs}
