"""What schedules know of a device beyond its architecture: numbers, each with its unit.

    fitted.py      which numbers there are, and what each means
    h200.py        those that were fitted on an H200
    data_sheet.py  those of all other devices, from their own data sheets
"""

from __future__ import annotations

from targets.cuda.facts.data_sheet import Sheet, from_data_sheet
from targets.cuda.facts.fitted import Fitted
from targets.cuda.facts.h200 import H200

FITTED = {"sm_90": H200}
"""Devices that somebody measured, by architecture."""


def fitted_of(arch: str, sheet: Sheet) -> Fitted:
    """What was measured on an architecture; else what its data sheet tells."""
    return FITTED.get(arch) or from_data_sheet(sheet)
