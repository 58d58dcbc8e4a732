"""The options of schedules that only the targets of GPUs read; see
`dialects/strata/schedule_options.py`."""

from __future__ import annotations

from dialects.strata.schedule_options import AnyOption, FlagOption, IntegerOption, WordOption

OWNER = "cuda, hip"

WARPS = IntegerOption(
    "warps", 4, "warps that compute a program together; with `specialize`, warps that multiply",
    OWNER, least=1, most=64)
STAGES = IntegerOption(
    "stages", 1, "steps of a loop that are in flight at once: software pipelining", OWNER, most=64)
STRIP = IntegerOption(
    "strip", 1, "numbers programs column by column along strips of this many tiles of the last "
    "grid axis but one, so that those that run together share what they read", OWNER, least=1)
DESCEND = FlagOption(
    "descend", False, "takes the tiles of the last axis from its end, where those take longest",
    OWNER)
POINTERS = FlagOption(
    "pointers", False, "moves pointers from step to step instead of computing addresses anew",
    OWNER)
PROMOTE = IntegerOption(
    "promote", 0, "adds the sum of this many products of narrow floats, which may have fewer bits "
    "until then, to a sum in f32; 0: never", OWNER)
SPECIALIZE = FlagOption(
    "specialize", False, "has a producer warp of each program load the factors of products, while "
    "groups of four warps multiply (warp specialization)", OWNER)
SPARE = IntegerOption(
    "spare", 0, "multiprocessors that a persistent kernel leaves to an exchange with other ranks",
    OWNER, most=1024)
REGISTERS = IntegerOption(
    "registers", 0, "registers of a thread at most; 0: as the compiler chooses", OWNER, most=255)
LIBRARY = WordOption(
    "library", "", "calls a library instead, where it can", OWNER, r"[a-z]+(\.\w+)+",
    "a library and the form of the kernel, as cublas.mk.kn.mn")
WRITTEN = WordOption(
    "written", "", "launches a kernel that the user has written instead", OWNER, r"[^\W\d]\w*",
    "the name of its function")

OPTIONS: tuple[AnyOption, ...] = (
    WARPS, STAGES, STRIP, DESCEND, POINTERS, PROMOTE, SPECIALIZE, SPARE, REGISTERS, LIBRARY,
    WRITTEN)
