"""What a trial led to, and what a search has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RIGHT, OPTIONS, IMPORT = "right", "options", "import"
PHASE = "phase"
"""The key of what a process of trials does now, in words, beside an outcome."""
CODE = -1
"""The step in which the target makes code."""
EFFECTS = {"wrong": "wrong numbers", "fault": "a fault of the compiler", "invalid": "invalid IR",
           "refused": "a refusal", "crash": "a crash", "timeout": "a hang",
           "peer": "other numbers than onnxruntime's"}
"""The kinds of outcomes other than right, in words."""


@dataclass(frozen=True)
class Outcome:
    """`kind`: right, or one of EFFECTS. `step`: how many passes had run, the last of which is
    `name`; 0 for the import, CODE for the target's code.

    `done`: the rewrites of the last pass. `operation`, `rule` and `nodes`: what the last of them
    changed; `tried`: whether a rule failed on it before it counted. `kernel`: whose code is wrong.
    """

    kind: str = RIGHT
    text: str = ""
    step: int = 0
    name: str = IMPORT
    done: int = 0
    operation: str = ""
    rule: str = ""
    nodes: Sequence[str] = ()
    tried: bool = False
    kernel: str = ""

    def is_like(self, other: Outcome) -> bool:
        return self.kind == other.kind

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Outcome:
        return Outcome(**facts)


@dataclass(frozen=True)
class Finding:
    """What fails. `pass_`: a pass, import, or a target. `rewrite`: its number in the pass, from 1;
    None if the pass does not count them, or all of it is at fault. `rewrites`: how many there are.
    """

    pass_: str
    kind: str
    text: str
    seed: int
    rewrite: int | None = None
    rewrites: int = 0
    rule: str = ""
    operation: str = ""
    nodes: Sequence[str] = ()
    kernel: str = ""

    @property
    def json(self) -> dict[str, Any]:
        return {"pass": self.pass_, "rewrite": self.rewrite, "operation": self.operation or None,
                "node": self.nodes[0] if self.nodes else None, "nodes": list(self.nodes),
                "rewrites": self.rewrites, "rule": self.rule or None, "kind": self.kind,
                "kernel": self.kernel or None,
                "seed": self.seed, "text": self.text}

    def lines(self) -> list[str]:
        """What people read."""
        count = "not counted" if self.rewrite is None else str(self.rewrite) + (
            f" of {self.rewrites}" if self.rewrites else "")
        rule = f", by {self.rule}" if self.rule and self.rule != self.pass_ else ""
        shown = [("pass", self.pass_), ("rewrite", count + rule), ("operation", self.operation),
                 *([("kernel", self.kernel)] if self.kernel else []),
                 ("node", ", ".join(self.nodes))]
        return [f"{name + ':':11}{text or 'unknown'}" for name, text in shown]


NOTHING: Mapping[str, Any] = {
    "pass": None, "rewrite": None, "operation": None, "node": None, "nodes": [], "rewrites": None,
    "rule": None, "kind": RIGHT, "kernel": None, "seed": None, "text": "nothing differs"}
"""What is written of a model that is right: the keys of `Finding.json`."""
