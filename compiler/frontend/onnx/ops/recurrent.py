"""Recurrent layers."""

from __future__ import annotations

from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.values import Value
from dialects.graph.recurrent import LstmOp

_DEFAULT_GATES = ["Sigmoid", "Tanh", "Tanh"]


@onnx_op("LSTM")
def lstm(
    n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lengths: Value | None = None,
    initial_h: Value | None = None, initial_c: Value | None = None, peepholes: Value | None = None,
) -> list[Value]:
    direction = n.text("direction", "forward")
    _check_plain(n, peepholes, 2 if direction == "bidirectional" else 1)
    batch_first = n.flag("layout")
    if batch_first:  # [batch, seq, in] and [batch, dirs, h]
        x = n.transpose(x, [1, 0, 2])
        initial_h, initial_c = (
            n.transpose(s, [1, 0, 2]) if s is not None else None for s in (initial_h, initial_c))
    _check_lengths(x, lengths)
    extras = [v for v in (b, initial_h, initial_c) if v is not None]
    y, y_h, y_c = n.build.results(
        LstmOp, x, w, r, *extras, hidden_size=n.integer("hidden_size", _hidden(r)),
        direction=direction, has_bias=b is not None, has_initial_h=initial_h is not None,
        has_initial_c=initial_c is not None)
    if not batch_first:
        return [y, y_h, y_c]
    return [n.transpose(y, [2, 0, 1, 3]), *[n.transpose(s, [1, 0, 2]) for s in (y_h, y_c)]]


def _hidden(r: Value) -> int:
    size = r.shape[-1].constant if r.rank else None
    if size is None:
        raise Fault("hidden_size is missing")
    return size


def _check_plain(n: Node, peepholes: Value | None, directions: int) -> None:
    """Raise Fault for the variants that `graph.lstm` does not have."""
    if peepholes is not None:
        raise Fault("peepholes are not supported")
    if n.real("clip") or n.integer("input_forget"):
        raise Fault("clip and input_forget are not supported")
    given = n.texts("activations")
    if given and given != _DEFAULT_GATES * directions:
        raise Fault(f"activations {given} are not supported; only {_DEFAULT_GATES} are")


def _check_lengths(x: Value, lengths: Value | None) -> None:
    """Sequences must have their full length, since nothing masks the rest."""
    if lengths is None:
        return
    full = x.shape[0].constant
    if lengths.array is None or full is None or (lengths.array != full).any():
        raise Fault("sequence_lens is only supported where it is constant and all sequences have "
                    "the full length")
