"""A module on its way through the pipeline."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from compiler.pipeline.steps import PIPELINE
from compiler.pipeline.text import format_header, format_module
from dialects.records import dataclass
from passes.base import StrataContext

if TYPE_CHECKING:
    from compiler.frontend.origins import ModelNode

IMPORT = "import"
"""The label of the import, before any pass has run."""


@dataclass
class State:
    """A module in the pipeline: its level and the passes that ran. Passes modify it in place."""

    module: ModuleOp
    context: StrataContext
    name: str
    level: str
    after: tuple[str, ...] = ()
    nodes: tuple[ModelNode, ...] = ()
    """The model's nodes, as its frontend told them."""
    _text: str | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The module's text with locations and header, printed at most once per pass."""
        if self._text is None:
            self._text = format_module(self.module)
        return format_header(self.level, self.position) + self._text

    @property
    def position(self) -> tuple[str, ...]:
        """The last pass of the default pipeline that ran, and the passes after it."""
        default = {step.name for step in PIPELINE}
        known = [k for k, label in enumerate(self.after) if label.partition("@")[0] in default]
        return self.after[known[-1] if known else 0:] or (IMPORT,)

    def body_text(self) -> str:
        """The text without the header."""
        return self.text.partition("\n")[2]

    def moved(self, level: str, label: str) -> None:
        """Record that a pass has run."""
        self.level, self.after, self._text = level, (*self.after, label), None
