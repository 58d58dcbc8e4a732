"""The LSTM layer that PyTorch records on the CPU; others are traced step by step."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.recurrent import LstmOp

_LSTM = 2


@aten_op("aten.mkldnn_rnn_layer.default", ignored=("num_layers", "train"))
def layer(
    n: Node, x: Value, w: Value, r: Value, b: Value, c: Value, hidden: Value, cell: Value,
    reverse: bool, batches: list[int], mode: int, size: int, layers: int, has_biases: bool,
    both: bool, batch_first: bool,
) -> list[Value]:
    """One direction of one layer: [seq, batch, h], and the last states [1, batch, h]."""
    if mode != _LSTM or batches or both or batch_first or layers != 1:
        raise Fault("it is not one direction of an LSTM layer")
    states = [v.reshape([1, *v.shape[-2:]]) for v in (hidden, cell)]
    biases = [f.concat([_ordered(b, size), _ordered(c, size)], axis=0)] if has_biases else []
    flags = {"has_bias": True} if has_biases else {}
    y, last, kept = n.build.results(
        LstmOp, x, *(_one(_ordered(v, size)) for v in (w, r)), *map(_one, biases), *states,
        hidden_size=size, direction="reverse" if reverse else "forward", has_initial_h=True,
        has_initial_c=True, **flags)
    return [y.reshape([y.shape[0], *y.shape[2:]]), last, kept]


def _one(x: Value) -> Value:
    return x.reshape([1, *x.shape])


def _ordered(x: Value, size: int) -> Value:
    """The gates i, f, g, o in the order i, o, f, g."""
    return f.concat([x.part(0, k * size, size) for k in (0, 3, 1, 2)], axis=0)
