"""Predicted times of a program, from its text at block level. Needs no device.

The prediction ranks what the compiler makes; it does not replace a measurement. What it sees are
launches, programs that are too few or too small, bytes that move, accesses that are not coalesced
or not wide, products without tensor cores, divisions of indices in tiles, and loads that a program
waits for.

    accesses.py   what an access touches: sectors and the width of a thread's words, by NumPy
    work.py       the work of one program of a kernel, operation by operation
    beside.py     launches while an exchange with other ranks occupies multiprocessors
    time.py       the seconds of a kernel and of all launches, from the facts of a machine
"""

from __future__ import annotations

from targets.cuda.prediction.time import Prediction, launch_seconds, predict

__all__ = ["Prediction", "launch_seconds", "predict"]
