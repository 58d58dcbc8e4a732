"""Executables of the CPU target in parts, to be stored in a file and loaded again.

Loading imports neither xDSL nor LLVM.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.strata.array_type import dtype_named
from targets.cpu.build.native import Image, load_image
from targets.cpu.runtime.executable import CpuExecutable, Source, with_open
from targets.cpu.runtime.plan import RunPlan
from targets.cpu.runtime.processors import (
    NAMED_SETS,
    instruction_sets,
    permits_matrices,
    processor_facts,
    thread_count,
)
from targets.interface import TargetError
from targets.stored_code import Loading, checksum

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from targets.interface import Executable


_FOLDER = os.path.dirname(os.path.abspath(__file__))
_AGREED = ("runtime", "driver", "llvm", "build/native.py", "build/image.py", "stored.py")
"""The files that define how native code is called, in this folder."""
_MATRICES = "amx_tile"
_NOTHING = np.empty(0, np.uint8)


def identity() -> str | None:
    """What code for this machine depends on; None if that is not known."""
    return processor_facts()


def needs(features: str | None) -> list[str]:
    """The instruction sets of code for a named feature set, or for all that this machine has."""
    return sorted(instruction_sets() if features is None else NAMED_SETS[features])


def lacking(needs: Sequence[str]) -> list[str]:
    """Those of the instruction sets that this process cannot use.

    Asks the system for the permission to use matrix registers, which it grants to a process.
    """
    there = instruction_sets()
    if _MATRICES in needs and not permits_matrices():
        there -= {_MATRICES}
    return sorted(set(needs) - there)


def refusal(lacking: Sequence[str]) -> tuple[str, str]:
    """What keeps a program from running here, and what to do."""
    return (f"it uses instructions that this processor lacks: {', '.join(lacking)}",
            "features='avx2' compiles for most processors")


def convention() -> str:
    """A checksum of the sources that define how native code and Python call each other."""
    return checksum(_FOLDER, _AGREED)


def parts(
    executable: Executable, open_: Collection[str] = ()
) -> tuple[dict[str, Any], list[Array]] | None:
    """Facts and blobs: the machine code, then the constants but for those of `open_` weights. None
    for code that was not linked as an image."""
    if not isinstance(executable, CpuExecutable) or executable.library.image is None:
        return None
    image, constants = executable.library.image, executable.constants
    left_out = [source if source is not None and source.key in open_ else None
                for source in executable.sources or [None] * len(constants)]
    facts = {"plan": executable.plan.facts(), "entry": image.entry, "slots": image.slots,
             "open": [source and [source.key, source.dtype.name] for source in left_out]}
    kept = [a for a, source in zip(constants, left_out, strict=True) if source is None]
    return facts, [np.frombuffer(image.code, np.uint8), *kept]


def load(
    facts: Mapping[str, Any], blobs: Sequence[Array], loading: Loading,
    weights: WeightStore | None = None,
) -> CpuExecutable:
    """The executable from its parts. Raises TargetError for positions outside of the code."""
    code, *kept = blobs
    entry, slots = facts["entry"], facts["slots"]
    if not (0 <= entry < code.size and all(0 <= s <= code.size - 8 for s in slots.values())):
        raise TargetError("its code does not contain what it refers to")
    library = load_image(Image(code.tobytes(), entry, slots))
    sources = [open_ and Source(str(open_[0]), dtype_named(open_[1])) for open_ in facts["open"]]
    if any(s is not None and not (weights and weights.is_open_key(s.key)) for s in sources):
        raise TargetError("it needs weights that its caller does not have")
    given = iter(kept)
    constants = [next(given) if source is None else _NOTHING for source in sources]
    if weights is not None:
        constants = with_open(constants, sources, weights)
    return CpuExecutable(RunPlan.read(facts["plan"]), library, constants,
                         thread_count(loading.threads), sources)


def load_library(path: str, facts: Mapping[str, Any], threads: int | None) -> Executable:
    """The model of a shared library. Raises TargetError if the system does not load it."""
    from targets.cpu.artifact.loaded import load_library as load_checked

    return load_checked(path, facts, threads)
