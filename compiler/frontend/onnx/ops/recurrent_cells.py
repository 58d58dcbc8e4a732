"""Recurrent layers step by step: RNN, GRU, and the LSTMs that `graph.lstm` does not support.

    W, R of a direction  ->  per step the gates  ->  the cell's new state  ->  Y, Y_h (, Y_c)

Up to UNROLLED steps are unrolled. More steps, or a number that is known only at run time, become a
loop. In both cases, one matrix product multiplies the inputs of all steps by W first. After the end
of an item's sequence, its state no longer changes, and Y is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.activation import clip
from compiler.frontend.onnx.ops.slicing import entry_of_turn, reversed_
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value
from dialects.graph.activation import (
    EluOp,
    HardSigmoidOp,
    LeakyReluOp,
    ReluOp,
    SoftplusOp,
)
from dialects.graph.base import GraphOp
from dialects.graph.unary import SigmoidOp, TanhOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

UNROLLED = 16
"""The maximum number of steps that are unrolled: the code stays small and covers the sequence."""

State = list[Value]
Function = Callable[[Value], Value]
Cell = Callable[["Direction", Value, State], State]
"""`cell(direction, x W^T + biases, state)`: the next state, the output first."""


@dataclass
class Direction:
    """One direction of a layer: recurrent weights [h, g*h], inner bias, peepholes and functions."""

    n: Node
    r: Value
    inner: Value | None
    """The bias of GRU's last gate that is added before the reset."""
    peepholes: Value | None
    functions: list[Function]
    hidden: int

    def gate(self, x: Value, k: int) -> Value:
        """Part k of the last dim, whose parts have `hidden` entries each."""
        return x.part(x.rank - 1, k * self.hidden, self.hidden)

    def clipped(self, x: Value) -> Value:
        limit = self.n.real("clip")
        if not limit:
            return x
        return clip(self.n, x, self.n.scalar(-limit, x), self.n.scalar(limit, x))


class Layer(NamedTuple):
    """The inputs of a recurrent layer. The first dim of x is the time, the second the batch."""

    n: Node
    x: Value
    w: Value
    r: Value
    bias: Value | None
    lengths: Value | None
    peepholes: Value | None
    initial: Sequence[Value | None]

    @property
    def hidden(self) -> int:
        return self.n.known_ints(self.n.of_sizes([self.r.shape[-1]]), "hidden sizes")[0]

    def run(self, cell: Cell, d: int, functions: list[Function], backward: bool) -> State:
        """The outputs of direction d for all steps, and its final states."""
        n = self.n
        projected = self.projected(d)
        begin = [_initial(n, self.x, s, d, self.hidden) for s in self.initial]
        steps = self.x.shape[0].constant or 0
        if 1 <= steps <= UNROLLED:
            order = range(steps)[::-1 if backward else 1]
            direction = self.direction(d, functions)
            y, last = _walk(n, direction, cell, projected, begin, self.lengths, order)
        else:
            y, last = self._loop(cell, d, functions, projected, begin, backward)
        return [y, *last]

    def projected(self, d: int) -> Value:
        """The part of all gates that does not depend on the state: x W^T + W_b + R_b, for all
        steps.
        """
        n = self.n
        gates = self.x @ _at(self.w, d).transpose([1, 0])
        if self.bias is None:
            return gates
        bias, size = _at(self.bias, d), self.w.shape[1]
        own, recurrent = bias.part(0, 0, size), bias.part(0, size, size)
        if self.has_inner_bias:
            outer = recurrent.part(0, 0, 2 * self.hidden)
            zeros = n.scalar(0, bias).broadcast([self.hidden])
            recurrent = f.concat([outer, zeros], axis=0)
        return gates + (own + recurrent)

    @property
    def has_inner_bias(self) -> bool:
        return self.bias is not None and self.n.op_type == "GRU" and (
            self.n.flag("linear_before_reset"))

    def direction(self, d: int, functions: list[Function]) -> Direction:
        n, inner = self.n, None
        if self.has_inner_bias and self.bias is not None:
            inner = _at(self.bias, d).part(0, 5 * self.hidden, self.hidden)
        peepholes = None if self.peepholes is None else _at(self.peepholes, d)
        recurrent = _at(self.r, d).transpose([1, 0])
        return Direction(n, recurrent, inner, peepholes, functions, self.hidden)

    def _loop(
        self, cell: Cell, d: int, functions: list[Function], projected: Value, begin: State,
        backward: bool,
    ) -> tuple[Value, State]:
        """The same as `_walk`, for any number of steps.

        Constant weights are prepared in the body, where that is constant-folded; others before the
        loop.
        """
        n, size = self.n, projected.shape[0]
        prepared = None if self.r.array is not None else self.direction(d, functions)

        def body(step: Expr, state: State) -> Turn:
            direction = prepared or self.direction(d, functions)
            time = size - 1 - step if backward else step
            new = cell(direction, entry_of_turn(n, projected, time), state)
            new, output = _masked(n, new, state, self.lengths, time)
            return Turn(None, new, [output])

        state, [y] = repeat(n.build, Loop(f"{n.name}_step", size, None, begin), body)
        return reversed_(n, y) if backward else y, state


def run_layer(
    n: Node, cell: Cell, defaults: Sequence[str], inputs: Sequence[Value],
    optional: Sequence[Value | None], initial: Sequence[Value | None],
) -> list[Value]:
    """Build a recurrent layer. Returns Y, then the final states.

    `inputs`: x, w, r; `optional`: bias, lengths, peepholes. Layers in f16 and bf16 are computed in
    f32, and their results are rounded once.
    """
    x, w, r = inputs
    bias, lengths, peepholes = optional
    if (narrow := x.element) in (t.f16, t.bf16):
        bias, peepholes, *initial = (v if v is None else v.cast(t.f32)
                                     for v in (bias, peepholes, *initial))
        results = run_layer(n, cell, defaults, [v.cast(t.f32) for v in inputs],
                            [bias, lengths, peepholes], initial)
        return [v.cast(narrow) for v in results]
    if not x.rank == w.rank == r.rank == 3:
        raise Fault(f"x, w and r must have 3 dims each, not be {x.type.short}, {w.type.short} and "
                    f"{r.type.short}")
    batch_first = n.flag("layout")
    if batch_first:
        x = x.transpose([1, 0, 2])
        initial = [s if s is None else s.transpose([1, 0, 2]) for s in initial]
    if lengths is not None:
        n.require(0, lengths, x.shape[0] + 1)
    x = _of_batch(n, x, initial)
    layer = Layer(n, x, w, r, bias, lengths, peepholes, initial)
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    backwards = directions.get(n.text("direction", "forward"))
    if backwards is None:
        raise Fault(f"its direction is '{n.text('direction')}'; it must be one of "
                    f"{', '.join(directions)}")
    count = len(defaults)
    functions = _functions(n, list(defaults) * len(backwards))
    rows = [layer.run(cell, d, functions[d * count:(d + 1) * count], backward)
            for d, backward in enumerate(backwards)]
    y, *states = ([v.reshape([*v.shape[:k], 1, *v.shape[k:]]) for v in column]
                  for k, column in zip((1, *[0] * len(initial)), zip(*rows, strict=True),
                                       strict=True))
    results = [_join(y, 1), *[_join(column, 0) for column in states]]
    if not batch_first:
        return results
    return [results[0].transpose([2, 0, 1, 3]), *(s.transpose([1, 0, 2]) for s in results[1:])]


def _walk(
    n: Node, direction: Direction, cell: Cell, projected: Value, state: State,
    lengths: Value | None, order: range,
) -> tuple[Value, State]:
    """Unroll the steps in this order. Returns the outputs in order of time, and the final state."""
    outputs: dict[int, Value] = {}
    for k in order:
        new = cell(direction, _at(projected, k), state)
        state, output = _masked(n, new, state, lengths, Expr.of(k))
        outputs[k] = output.reshape([1, *output.shape])
    return _join([outputs[k] for k in range(len(order))], 0), state


def _masked(
    n: Node, new: State, old: State, lengths: Value | None, time: Expr
) -> tuple[State, Value]:
    """The state after a step, and the step's output.

    An item whose sequence has ended keeps its old state, and its output is 0.
    """
    if lengths is None:
        return new, new[0]
    now = n.of_size(time).cast(lengths.element)
    live = lengths.reshape([lengths.shape[0], 1]) > now
    output = f.where(live, new[0], 0)
    return [f.where(live, a, b) for a, b in zip(new, old, strict=True)], output


# ---------------------------------------------------------------------- cells
def rnn_cell(d: Direction, x: Value, state: State) -> State:
    """H = f(x + H R)."""
    [h], [act] = state, d.functions
    return [act(d.clipped(x + h @ d.r))]


def gru_cell(d: Direction, x: Value, state: State) -> State:
    """H = (1 - z) * g(...) + z * H, where the gates z and r depend on x and H."""
    [h], (gate, content) = state, d.functions
    recurrent = [h @ d.gate(d.r, k) for k in range(2)]
    z, r = (gate(d.clipped(d.gate(x, k) + recurrent[k])) for k in range(2))
    if d.n.flag("linear_before_reset"):
        inner = h @ d.gate(d.r, 2)
        inner = r * (inner if d.inner is None else inner + d.inner)
    else:
        inner = (r * h) @ d.gate(d.r, 2)
    new = content(d.clipped(d.gate(x, 2) + inner))
    return [(1 - z) * new + z * h]


def lstm_cell(d: Direction, x: Value, state: State) -> State:
    """The gates are i, o, f and c. Peepholes add the weighted cell state to the first three."""
    [h, c], (gate, new, last) = state, d.functions
    total = x + h @ d.r
    i, o, forget, content = (d.gate(total, k) for k in range(4))
    i = gate(d.clipped(_peeped(d, i, c, 0)))
    coupled = d.n.flag("input_forget")
    keep = 1 - i if coupled else gate(d.clipped(_peeped(d, forget, c, 2)))
    cell = keep * c + i * new(d.clipped(content))
    o = gate(d.clipped(_peeped(d, o, cell, 1)))
    return [o * last(cell), cell]


def _peeped(d: Direction, x: Value, c: Value, k: int) -> Value:
    if d.peepholes is None:
        return x
    return x + d.gate(d.peepholes, k) * c


# ---------------------------------------------------------------------- activations
_PLAIN: dict[str, type[GraphOp]] = {
    "sigmoid": SigmoidOp, "tanh": TanhOp, "relu": ReluOp, "softplus": SoftplusOp,
}
_PARAMETERS: dict[str, tuple[float, ...]] = {
    "leakyrelu": (0.01,), "thresholdedrelu": (1.0,), "elu": (1.0,), "hardsigmoid": (0.2, 0.5),
    "affine": (1.0, 0.0), "scaledtanh": (1.0, 1.0),
}
"""The defaults of alpha and beta, for the functions that have these parameters."""


def _functions(n: Node, defaults: Sequence[str]) -> list[Function]:
    """The activation functions of all directions.

    Each function that has parameters uses up the next entries of the lists activation_alpha and
    activation_beta.
    """
    names = [name.lower() for name in n.texts("activations")] or [d.lower() for d in defaults]
    if len(names) != len(defaults):
        raise Fault(f"{len(names)} activations are given; there must be {len(defaults)}")
    alphas, betas = n.floats("activation_alpha"), n.floats("activation_beta")
    found: list[Function] = []
    for name in names:
        own = list(_PARAMETERS.get(name, ()))
        for k, values in enumerate((alphas, betas)[:len(own)]):
            own[k] = values.pop(0) if values else own[k]
        found.append(partial(_activate, n, name, own))
    return found


def _activate(n: Node, name: str, own: Sequence[float], x: Value) -> Value:
    if name in _PLAIN:
        return n(_PLAIN[name], x)
    match name:
        case "softsign":
            return x / (1 + abs(x))
        case "leakyrelu":
            return n(LeakyReluOp, x, alpha=own[0])
        case "elu":
            return n(EluOp, x, alpha=own[0])
        case "hardsigmoid":
            return n(HardSigmoidOp, x, alpha=own[0], beta=own[1])
        case "thresholdedrelu":
            return f.where(x > own[0], x, 0)
        case "affine":
            return x * own[0] + own[1]
        case "scaledtanh":
            return f.tanh(x * own[1]) * own[0]
        case _:
            raise Fault(f"its activation '{name}' is not supported")


# ---------------------------------------------------------------------- helpers
def _at(x: Value, k: int) -> Value:
    """Entry k of the first dim."""
    return x.part(0, k, 1).reshape(x.shape[1:])


def _join(values: list[Value], axis: int) -> Value:
    return f.concat(values, axis=axis) if len(values) > 1 else values[0]


def _of_batch(n: Node, x: Value, states: Sequence[Value | None]) -> Value:
    """x [time, batch, size], with the constant batch size of the initial states if x has none."""
    known = [s.shape[1] for s in states if s is not None and s.shape[1].constant is not None]
    if not known or x.shape[1].constant is not None:
        return x
    n.build.assume(x.shape[1], "==", known[0])
    return x.reshape([x.shape[0], known[0], x.shape[2]])


def _initial(n: Node, x: Value, given: Value | None, direction: int, hidden: int) -> Value:
    if given is not None:
        return _at(given, direction)
    return n.scalar(0, x).broadcast([x.shape[1], hidden])
