"""Executables of the CPU target in parts, to be stored in a file and loaded again.

Loading imports neither xDSL nor LLVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from targets.cpu.build.native import Image, load_image
from targets.cpu.runtime.executable import CpuExecutable
from targets.cpu.runtime.plan import RunPlan
from targets.cpu.runtime.processors import processor_facts, thread_count

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.interface import Executable


def identity() -> str | None:
    """What code for this machine depends on; None if that is not known."""
    return processor_facts()


def parts(executable: Executable) -> tuple[dict[str, Any], list[Array]] | None:
    """Facts and blobs: the machine code, then the constants. None for code that was not linked as
    an image."""
    if not isinstance(executable, CpuExecutable) or executable.library.image is None:
        return None
    image = executable.library.image
    facts = {"plan": executable.plan.facts(), "entry": image.entry, "slots": image.slots}
    return facts, [np.frombuffer(image.code, np.uint8), *executable.constants]


def load(facts: Mapping[str, Any], blobs: Sequence[Array], threads: int | None) -> CpuExecutable:
    """The executable from its parts."""
    code, *constants = blobs
    library = load_image(Image(code.tobytes(), facts["entry"], facts["slots"]))
    return CpuExecutable(RunPlan.read(facts["plan"]), library, constants, thread_count(threads))
