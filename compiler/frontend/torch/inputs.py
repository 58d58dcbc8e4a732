"""A program's inputs: arguments, weights and constants, and the user's options for their sizes.

    input_ids: i64[s0, 16]       with Dim("batch")  ->  %input_ids: i64[batch, 16]
    --dim batch=8                                   ->  %input_ids: i64[8, 16]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.diagnostics import some_of
from compiler.frontend import ImportOptions
from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault, Faults
from compiler.frontend.torch.captured_graph import free_symbols, is_integer
from compiler.frontend.torch.guards import Relation
from compiler.frontend.torch.signature import Signature
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.torch.tensors import constant_of, parameter_of, type_of
from compiler.frontend.values import Value
from compiler.suggestions import guess
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import TensorType, i64, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location

INPUTS = "inputs"
"""The name of the node to which assumptions about the inputs' sizes belong."""


LEAST = 2
"""PyTorch's lower limit of sizes by default. A run of a program does not check it, so that sizes of
0 and 1 are permitted (torch/_export/utils.py)."""


@dataclass
class Inputs:
    """The placeholders of a graph.

    Those that are no weights of the signature are arguments of the function.
    """

    graph: Any
    signature: Signature
    sizes: Sizes
    faults: Faults
    left_out: Collection[str] = ()
    """The weights that are not imported."""

    def arguments(self) -> dict[str, TensorType]:
        """The type of every argument. Problems of inputs are added to `faults`."""
        types: dict[str, TensorType] = {}
        for name, value in self._tensors():
            try:
                if name not in self.signature.weights:
                    types[name] = type_of(value, self.sizes)
            except Fault as fault:
                self.faults.add(f"input '{name}': {fault.what}", hint=fault.hint)
        bound = {s for type_ in types.values() for size in type_.shape for s in size.symbols}
        types |= dict.fromkeys(self._integers(bound), tensor(i64, []))
        return {n.name: types[n.name] for n in self.graph.nodes if n.name in types}

    def bind(
        self, build: Builder, values: Mapping[str, Value], wholes: Collection[Any] = ()
    ) -> None:
        """Let the symbols of integers be the sizes that the arguments of these names hold, but for
        nodes that are no sizes. A negative integer k is -1 - m for a size m, and thus certainly
        below 0 in all that is decided by it."""
        for node in self.graph.nodes:
            if is_integer(node) and node.name in values and node not in wholes:
                value, is_negative = values[node.name], node.name in self.signature.negative
                bound = build.bind(-1 - value if is_negative else value, node.name)
                assert bound is not None
                size = bound.reshape(-1)[0]
                self.sizes.bind(str(node.meta["val"].node.expr),
                                -1 - size if is_negative else size)

    def constants(self, build: Builder) -> dict[str, Value]:
        """The values of the weights that something uses."""
        values: dict[str, Value] = {}
        for name, _ in self._tensors():
            if name not in self.signature.weights or name in self.left_out:
                continue
            label, make = self.signature.shown(name), constant_of
            if name in self.signature.parameters:
                make = parameter_of
            try:
                values[name] = make(build, self.signature.weights[name], label)
            except Fault as fault:
                self.faults.add(f"weight '{label}': {fault.what}", hint=fault.hint)
        return values

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        for node in self.graph.nodes:
            value = node.meta.get("val")
            used = node.name not in self.signature.weights or node.users
            if node.op == "placeholder" and hasattr(value, "dtype") and used:
                yield node.name, value

    def _integers(self, bound: set[Symbol]) -> Iterator[str]:
        """The integers that are no sizes of tensors, and that something may depend on."""
        for node in filter(is_integer, self.graph.nodes):
            if node.name in self.signature.unread:
                continue
            try:
                missing = self.sizes(node.meta["val"]).symbols - bound
            except Fault as fault:
                self.faults.add(f"input '{node.name}': {fault.what}", hint=fault.hint)
                continue
            if missing and node.meta["val"].node.expr.is_Symbol:
                yield node.name
            elif missing and node.users:
                self.faults.add(f"input '{node.name}' is an integer that follows from others, "
                                "but not a size of a tensor", hint="export it with a constant")


# ---------------------------------------------------------------------- sizes
def read_options(
    graph: Any, names: Mapping[str, str], options: ImportOptions, faults: Faults
) -> dict[str, Expr]:
    """Size name -> the size that `--shape` and `--dim` give it. Wrong options are faults."""
    fixed = _read_shapes(graph, names, options, faults)
    known = {names.get(s, s) for s in free_symbols(graph)}
    for name, value in options.dims.items():
        meant = [n for n in known if n == name]
        if not meant:
            listed = some_of(sorted(known), 20) or "all constant"
            faults.add(f"--dim names '{name}', which is not a size of the model",
                       hint=f"{guess(name, known)}its sizes are {listed}")
        for size in meant:
            if fixed.setdefault(size, Expr.of(value)) != Expr.of(value):
                faults.add(f"--dim {name}={value}, but --shape gives it the size {fixed[size]}")
    return fixed


def _read_shapes(
    graph: Any, names: Mapping[str, str], options: ImportOptions, faults: Faults
) -> dict[str, Expr]:
    fixed: dict[str, Expr] = {}
    inputs = {n.name: n.meta["val"] for n in graph.nodes
              if n.op == "placeholder" and hasattr(n.meta.get("val"), "dtype")}
    for name, given in options.shapes.items():
        if name not in inputs:
            faults.add(f"--shape names '{name}', which is not an input of the model",
                       hint=f"{guess(name, inputs)}the inputs are {some_of(list(inputs), 20)}")
            continue
        own = list(inputs[name].shape)
        if len(own) != len(given):
            faults.add(f"--shape gives input '{name}' {len(given)} dims; the model has {len(own)}")
            continue
        for size, wanted in zip(own, given, strict=True):
            _match(name, size, wanted, names, fixed, faults)
    return fixed


def _match(
    name: str, size: Any, wanted: int | str, names: Mapping[str, str], fixed: dict[str, Expr],
    faults: Faults,
) -> None:
    new = Expr.of(wanted) if isinstance(wanted, int) else Expr.size(wanted)
    if isinstance(size, int) or not size.node.expr.is_Symbol:
        if str(size) != str(wanted):
            faults.add(f"--shape gives a dim of input '{name}' the size {wanted}, but it is {size}",
                       hint="a size that is fixed cannot be changed; export the model with a "
                            "dynamic dim")
        return
    symbol = names.get(str(size.node.expr), str(size.node.expr))
    if fixed.setdefault(symbol, new) != new:
        faults.add(f"--shape gives the size {symbol} as {fixed[symbol]} and as {new}")


def assumptions(
    ranges: Mapping[Any, Any], guards: Sequence[Relation], sizes: Sizes, bound: set[Symbol]
) -> Sequence[AssumeOp]:
    """Assumptions that the program was exported with: ranges of sizes, and the traced branches."""
    found: list[AssumeOp] = []
    for _, size, low, high in _limits(ranges, sizes):
        if size.constant is not None or not size.symbols <= bound:
            continue
        if low > LEAST:
            found.append(AssumeOp.of(low, "<=", size))
        if high is not None:
            found.append(AssumeOp.of(size, "<=", high))
    found += [AssumeOp.of(left, relation, right) for left, relation, right, _ in guards
              if left.symbols | right.symbols <= bound]
    for op in found:
        op.location = location(INPUTS)
    return found


def check_fixed(ranges: Mapping[Any, Any], sizes: Sizes, faults: Faults) -> None:
    """Add a fault for each size that the user has fixed outside of its range."""
    for name, size, low, high in _limits(ranges, sizes):
        value = size.constant
        low = 0 if low <= LEAST else low
        if value is not None and not low <= value <= (value if high is None else high):
            limits = f"at least {low}" if high is None else f"{low} to {high}"
            faults.add(f"the size {name} is {value}, but the model was exported for {limits}")


def _limits(
    ranges: Mapping[Any, Any], sizes: Sizes
) -> Iterator[tuple[str, Expr, int, int | None]]:
    """The name, the size, and the first and last value of every size that has a range."""
    for symbol, limits in sorted(ranges.items(), key=lambda item: str(item[0])):
        if symbol.is_Symbol:
            low, high = (int(v) if v.is_Integer else None for v in (limits.lower, limits.upper))
            name = sizes.names.get(str(symbol), str(symbol))
            yield name, sizes.symbol(str(symbol)), max(low or 1, 1), high
