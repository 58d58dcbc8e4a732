"""Passes with planted faults: each does its harm where it meets one kind of operation."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from dialects.graph import ErfOp, SinhOp, SoftplusOp, SqrtOp, TanhOp
from passes.base import PassError, StrataPass
from passes.rewriting import rewrite


@dataclass(frozen=True)
class WrongTanh(StrataPass):
    """tanh becomes sinh."""

    name = "wrong-tanh"

    def run(self, context, module):
        rewrite(module, {TanhOp: [lambda op, at: at(SinhOp, op.x)]}, context)


@dataclass(frozen=True)
class FaultyErf(StrataPass):
    """Fails on erf."""

    name = "faulty-erf"

    def run(self, context, module):
        if any(isinstance(op, ErfOp) for op in module.walk()):
            raise KeyError("erf")


@dataclass(frozen=True)
class RefusedErf(StrataPass):
    """Refuses erf."""

    name = "refused-erf"

    def run(self, context, module):
        found = [op for op in module.walk() if isinstance(op, ErfOp)]
        if found:
            raise PassError(self.name, [("", "there is an erf")])


@dataclass(frozen=True)
class CrashingSqrt(StrataPass):
    """Ends the process on a square root."""

    name = "crashing-sqrt"

    def run(self, context, module):
        if any(isinstance(op, SqrtOp) for op in module.walk()):
            os.kill(os.getpid(), signal.SIGSEGV)


@dataclass(frozen=True)
class HangingSoftplus(StrataPass):
    """Does not come back from a softplus."""

    name = "hanging-softplus"

    def run(self, context, module):
        while any(isinstance(op, SoftplusOp) for op in module.walk()):
            time.sleep(1)
