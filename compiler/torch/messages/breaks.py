"""Why PyTorch ends a graph before the program ends, where, and what is usually written instead.

    if x.sum() > 0:    ->    Choose with torch.where, or branch with torch.cond(...).

TorchDynamo keeps the reason with each graph. Its own text is long and about Dynamo; the table here
has one sentence for each kind of reason, and what is in none of them keeps PyTorch's first hint, if
that tells what to do.

The module can be imported without torch.
"""

from __future__ import annotations

import logging
import re
import traceback
from dataclasses import dataclass
from typing import Any

from compiler.frontend.stacks import line_of
from compiler.torch.messages.logs import artifact_log

log = logging.getLogger("strata")

_OPERATOR = ("Make the call an operator with torch.library.custom_op and register_fake, or move it "
             "out of the compiled function.")
REWRITES = (
    (r"graph_break\(", "Remove the call of torch._dynamo.graph_break."),
    (r"generic_jump|[Dd]ata-dependent (branching|assertion)",
     "Choose with torch.where, or branch with torch.cond(condition, if_true, if_false, operands)."),
    (r"Tensor\.(item|tolist|__(int|float|bool|index)__)\b|_local_scalar_dense",
     "Keep it a tensor, or set torch._dynamo.config.capture_scalar_outputs = True."),
    (r"[Dd]ynamic (output )?shape operator",
     "Set torch._dynamo.config.capture_dynamic_output_shape_ops = True."),
    (r"[Dd]ata[- ]dependent operator",
     "Return the tensors that it compares or reads, and decide outside of the compiled function."),
    (r"`print`|[Ll]ogg(er|ing)|warnings\.warn",
     "Move it out of the compiled function, or add it to "
     "torch._dynamo.config.reorderable_logging_functions."),
    (r"Tensor\.backward|autograd\.(backward|grad)\b",
     "Call it outside of the compiled function, which then computes the loss."),
    (r"resize_", "Allocate a tensor of the final shape instead of resizing one."),
    (r"sparse", "Convert to a dense tensor before the compiled function."),
    (r"context manager", "Enter it outside of the compiled function."),
    (r"generator|iterator", "Loop over a list or a range."),
    (r"disable", "Remove torch.compiler.disable, or leave the function out of what is compiled."),
    (r"marked as skipped|builtin|C/C\+\+|C function|skipfiles|inline|not traceable", _OPERATOR),
)
"""What a reason matches -> what is usually written instead. The first that matches counts."""

OTHERWISE = "Move what the line does out of the compiled function."
_NO_ADVICE = "report an issue|graph break (is|may be)|may be (fixed|difficult)"


@dataclass(frozen=True)
class Break:
    """A graph that ends before the program does.

    `place`: the user's line, as in `model.py:12 in forward: print(x)`. `reason`: the first line of
    PyTorch's. `rewrite`: what is usually written instead.
    """

    place: str
    reason: str
    rewrite: str

    @property
    def json(self) -> dict[str, str]:
        return {"place": self.place, "reason": self.reason, "rewrite": self.rewrite}

    def __str__(self) -> str:
        return f"{self.place or 'an unknown line'}: {self.reason}. {self.rewrite}"


def break_of(graph: Any) -> Break | None:
    """Why a graph that Dynamo captured ends; None if the program ends there, too."""
    why = getattr(graph, "compile_subgraph_reason", None)
    if why is None or not why.graph_break:
        return None
    place = line_of("".join(traceback.format_list(why.user_stack)))
    return Break(place, _first_line(why.reason), rewrite_of(why.reason))


def rewrite_of(reason: str) -> str:
    """What is usually written instead of what broke a graph for this reason."""
    plain = _without_advice(reason)
    known = (text for what, text in REWRITES if re.search(what, plain))
    hints = (h for h in re.findall(r"(?m)^\s*Hint: (.+)$", reason) if not re.search(_NO_ADVICE, h))
    return next(known, "") or next(hints, OTHERWISE)


def show_break(graph: Any) -> None:
    """Log where a graph ends early: at level INFO, and where PyTorch is asked for graph breaks."""
    found = break_of(graph)
    if found is not None:
        log.info("strata: a graph ends at %s", found)
        artifact_log("graph_breaks").debug("strata: a graph ends at %s", found)


def _first_line(reason: str) -> str:
    """In words for what Dynamo names by its own function."""
    if reason.startswith("generic_jump"):
        return "Data-dependent branching"
    return reason.strip().partition("\n")[0].rstrip(".")


def _without_advice(reason: str) -> str:
    """Reasons and explanations without PyTorch's advice, whose words are about other things."""
    return re.sub(r"(?m)^\s*(Hint|For more details|\[).*$|https?://\S+", "", reason)
