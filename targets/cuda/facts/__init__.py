"""What schedule rules know about a device beyond its architecture: numbers with their units.

    fitted.py      the numbers and what each of them means
    h200.py        their values on an H200, fitted by measuring
    data_sheet.py  their values on all other devices, estimated from data sheets
"""

from __future__ import annotations

from targets.cuda.facts.data_sheet import Sheet, from_data_sheet
from targets.cuda.facts.fitted import Fitted
from targets.cuda.facts.h200 import H200

FITTED = {"sm_90": H200}
"""Measured devices by architecture."""


def fitted_of(arch: str, sheet: Sheet) -> Fitted:
    """The fitted numbers of an architecture; without any, the estimates from its data sheet."""
    return FITTED.get(arch) or from_data_sheet(sheet)
