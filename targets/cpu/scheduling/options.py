"""The options of schedules that only the CPU target reads; see
`dialects/strata/schedule_options.py`."""

from __future__ import annotations

from dialects.strata.schedule_options import AnyOption, FlagOption

PACK = FlagOption(
    "pack", False, "copies the operand that lies in lanes into panels though it is contiguous",
    "cpu")
SERIAL = FlagOption("serial", False, "keeps all programs of a launch on one thread", "cpu")

OPTIONS: tuple[AnyOption, ...] = (PACK, SERIAL)
