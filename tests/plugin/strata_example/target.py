"""The target `example`: the reference target, with the module's text as its target code."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from targets.base import TargetOptions
from targets.reference import ReferenceTarget


@dataclass(frozen=True)
class ExampleTarget(ReferenceTarget):
    """Shows the parts that a target has; most are inherited here."""

    def emit(self, module: ModuleOp, level: str, options: TargetOptions) -> str:
        return f"code of {sum(1 for _ in module.walk())} operations\n"


TARGET = ExampleTarget("example", ("count",), "an example of a target from outside", lowers=False)
