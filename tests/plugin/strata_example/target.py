"""The target `example`: the reference target, with the module's text as its target code."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from targets.parts import Emission
from targets.reference import ReferenceTarget


class ExampleEmission(Emission):
    """A level of code, `count`, that tells how long a module is."""

    def emit(self, module: ModuleOp, level: str) -> str:
        return f"code of {sum(1 for _ in module.walk())} operations\n"


class ExampleTarget(ReferenceTarget):
    """Has an emission of its own; the other parts are inherited here."""

    emission = ExampleEmission


TARGET = ExampleTarget("example", ("count",), "an example of a target from outside", lowers=False)
