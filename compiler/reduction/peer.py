"""onnxruntime's results for a model, and whether they differ from what the imported model means."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.measuring.comparison import worst

if TYPE_CHECKING:
    from compiler.instrument.verify import Verify
    from dialects.strata.types import Array


def run_onnxruntime(model: Path, named: Mapping[str, Array]) -> list[Any] | None:
    """The outputs of onnxruntime; None if it is not installed or does not support the model."""
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(named)))
    except Exception:  # any error: onnxruntime only counts where it works
        return None


def difference(verify: Verify, theirs: Sequence[Array]) -> str:
    """How a peer's outputs differ from those of the imported model; empty if they do not.

    They may be off by the tolerance of their types, or by what rounding explains. Peers also round
    functions such as sigmoid to a unit of 1 instead of one of their value.
    """
    ours = verify.expected
    if [a.shape for a in theirs] != [a.shape for a in ours]:
        return "shapes of outputs differ from onnxruntime's"
    if worst(ours, theirs, verify.tolerance)[1] is None:
        return ""
    judge = _lenient(verify)
    judge.check_outputs("onnxruntime", lambda _: theirs)
    found = judge.rows[-1]
    return f"{found.wrong} from onnxruntime's by {found.error:.1e}" if found.wrong else ""


def _lenient(verify: Verify) -> Verify:
    """The same judge, for whom bounded functions round coarsely."""
    judge = copy.copy(verify)
    judge.rows = []
    judge.__dict__.pop("explained", None)
    if judge.rounding is not None:
        judge.rounding = replace(judge.rounding, errors=[], bounded=1)
    return judge
