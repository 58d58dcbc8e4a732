"""Recurrent layers: RNN, GRU and LSTM."""

from __future__ import annotations

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.recurrent_cells import (
    UNROLLED,
    gru_cell,
    lstm_cell,
    rnn_cell,
    run_layer,
)
from compiler.frontend.values import Value
from dialects.graph.recurrent import LstmOp

_GATES = ["Sigmoid", "Tanh", "Tanh"]


@onnx_op("RNN")
def rnn(
    n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lengths: Value | None = None,
    initial_h: Value | None = None,
) -> list[Value]:
    return run_layer(n, rnn_cell, ["Tanh"], [x, w, r], [b, lengths, None], [initial_h])


@onnx_op("GRU")
def gru(
    n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lengths: Value | None = None,
    initial_h: Value | None = None,
) -> list[Value]:
    return run_layer(n, gru_cell, ["Sigmoid", "Tanh"], [x, w, r], [b, lengths, None], [initial_h])


@onnx_op("LSTM")
def lstm(
    n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lengths: Value | None = None,
    initial_h: Value | None = None, initial_c: Value | None = None, peepholes: Value | None = None,
) -> list[Value]:
    direction = n.text("direction", "forward")
    if x.rank != 3 or peepholes is not None or not _is_plain(n, x, lengths, direction):
        return run_layer(n, lstm_cell, _GATES, [x, w, r], [b, lengths, peepholes],
                         [initial_h, initial_c])
    batch_first = n.flag("layout")
    if batch_first:  # [batch, seq, in] and [batch, dirs, h]
        x = x.transpose([1, 0, 2])
        initial_h, initial_c = (s.transpose([1, 0, 2]) if s is not None else None
                                for s in (initial_h, initial_c))
    extras = [v for v in (b, initial_h, initial_c) if v is not None]
    y, y_h, y_c = n.build.results(
        LstmOp, x, w, r, *extras, hidden_size=n.integer("hidden_size", _hidden(r)),
        direction=direction, has_bias=b is not None, has_initial_h=initial_h is not None,
        has_initial_c=initial_c is not None)
    if not batch_first:
        return [y, y_h, y_c]
    return [y.transpose([2, 0, 1, 3]), *[s.transpose([1, 0, 2]) for s in (y_h, y_c)]]


def _hidden(r: Value) -> int:
    size = r.shape[-1].constant if r.rank else None
    if size is None:
        raise Fault("hidden_size is missing, and the shape of R does not tell it")
    return size


def _is_plain(n: Node, x: Value, lengths: Value | None, direction: str) -> bool:
    """Whether `graph.lstm` supports the layer.

    It has few steps, sequences of full length, the default activations, and no clipping.
    """
    steps = x.shape[1 if n.flag("layout") else 0].constant or 0
    full = 1 <= steps <= UNROLLED and (lengths is None or (
        lengths.array is not None and bool((lengths.array == steps).all())))
    gates = n.texts("activations") in ([], _GATES * (2 if direction == "bidirectional" else 1))
    return full and gates and not n.real("clip") and not n.flag("input_forget")
