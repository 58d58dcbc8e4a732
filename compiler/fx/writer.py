"""Writes a graph-level module as a `torch.fx.GraphModule` of ATen operators.

    %y = graph.add %x, %c : f32[n, 4]      ->      add = torch.ops.aten.add.Tensor(x, c)

Constants become buffers. A size is read from the shape of an input, or from the element that
`strata.size` reads. Checks (`strata.assume`, `strata.require`) are left out: PyTorch's operators
check what they need. Each node's `meta["strata"]` names the model's node.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

import compiler.fx
from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.library import torch_module
from compiler.io.arrays import to_torch
from compiler.io.structures import inverse, orders_of, structures_of
from dialects.graph.base import Build, CompositeOp
from dialects.graph.constant import ConstantOp
from dialects.strata.func import FuncOp, main_function
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import AssumeOp, SizeOp, defined_sizes
from dialects.strata.types import TensorType, tensor_type
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Atom, Call, Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name

Writes: TypeAlias = "Callable[[Writer, Any], Any]"
_MARK = "fx_operations"


def writes(*ops: type[Operation]) -> Callable[[Any], Any]:
    """Mark a function as what writes operations: it returns a node, or a list of nodes."""
    def mark(function: Any) -> Any:
        setattr(function, _MARK, ops)
        return function
    return mark


@cache
def _functions() -> Mapping[type[Operation], Writes]:
    """Operation -> what writes it."""
    names = [entry.name for entry in pkgutil.iter_modules(compiler.fx.__path__)]
    modules = [importlib.import_module(f"{compiler.fx.__name__}.{name}") for name in names
               if name != "writer"]
    return {op: function for module in modules for function in vars(module).values()
            for op in getattr(function, _MARK, ())}


class Unwritable(Exception):
    """No ATen operator computes an operation with these attributes."""


def graph_module(module: ModuleOp, weights: WeightStore, name: str) -> Any:
    """The module as a GraphModule, which returns a tuple of its outputs.

    Raises StrataError that names every operation without an operator of ATen.
    """
    fx = torch_module("torch.fx")
    root = torch_module().nn.Module()
    writer = Writer(fx.Graph(), root, weights)
    writer.function(main_function(module), orders_of(structures_of(module)))
    if writer.problems:
        raise StrataError(f"{name} has operations that ATen has not", writer.problems)
    made = fx.GraphModule(root, writer.graph, class_name="Strata")
    made.graph.lint()
    return made


class Writer:
    """Appends nodes to an FX graph. `values`: the node of each value; `sizes`: of each size.

    `counts`: tensors of numbers of iterations; `constants`: those that are arguments;
    `is_function`: the graph is one that another calls, which should hold no tensors.
    """

    def __init__(self, graph: Any, root: Any, weights: WeightStore, is_function: bool = False):
        self.graph, self.root, self.weights = graph, root, weights
        self.is_function = is_function
        self.values: dict[SSAValue, Any] = {}
        self.sizes: dict[Symbol, Any] = {}
        self.counts: dict[Symbol, Any] = {}
        self.constants: dict[ConstantOp, Any] = {}
        self.problems: list[Problem] = []
        self.aten: Any = torch_module().ops.aten

    # ------------------------------------------------------------------ the function
    def function(self, func: FuncOp, orders: Mapping[str, Sequence[int]]) -> None:
        """Write a function. `orders`: of inputs and outputs whose memory has another order."""
        for name, argument in zip(func.input_names, func.body.block.args, strict=True):
            node = self.graph.placeholder(_identifier(name))
            if name in orders:
                node = self.call("permute.default", node, list(orders[name]))
            self.values[argument] = node
            self._bind(node, tensor_type(argument))
        self._operations(func)
        results = [self.values.get(value) for value in func.return_op.operands]
        named = zip(results, func.output_names, strict=True)
        self.graph.output(tuple(
            self.call("permute.default", node, list(inverse(orders[name])))
            if name in orders and node is not None else node for node, name in named))

    def results_of(self, func: FuncOp, given: Sequence[Any]) -> list[Any]:
        """Write the operations of a function with these arguments. Raises Unwritable if one has a
        recorded problem."""
        for argument, node in zip(func.body.block.args, given, strict=True):
            self.values[argument] = node
            self._bind(node, tensor_type(argument))
        self._operations(func)
        if any(value not in self.values for value in func.return_op.operands):
            raise Unwritable(f"@{func.sym_name.data} has such an operation")
        return [self.values[value] for value in func.return_op.operands]

    def _operations(self, func: FuncOp) -> None:
        for op in func.body.block.ops:
            if op is not func.return_op:
                self._write(op)

    def _bind(self, node: Any, type_: TensorType) -> None:
        """Let symbols be read from a tensor's dims: n from n, or from 2*n + 1."""
        for dim, size in sorted(enumerate(type_.shape), key=lambda item: len(item[1].terms)):
            symbol, factor = _linear(size)
            if symbol is not None and symbol not in self.sizes:
                found = self.call("sym_size.int", node, dim)
                found = self._python("sub", found, size.offset) if size.offset else found
                self.sizes[symbol] = found if factor == 1 else (
                    self._python("floordiv", found, factor))

    def _write(self, op: Operation) -> None:
        if isinstance(op, AssumeOp | RequireOp):
            return
        function = _functions().get(type(op))
        missing = any(operand not in self.values for operand in op.operands)
        try:
            if missing:
                return  # an operand has a recorded problem
            if isinstance(op, SizeOp):
                self._define(op)
                return
            if function is None and isinstance(op, CompositeOp):
                self._parts(op)
                return
            made = self.constant(op) if isinstance(op, ConstantOp) else (
                None if function is None else function(self, op))
            if made is None:
                raise Unwritable("it has no operator in ATen")
            listed = cast(list[Any], made) if isinstance(made, list) else [made]
            self.values.update(zip(op.results, listed, strict=True))
            for node in listed:
                node.meta["strata"] = location_name(op)
            for result in op.results if defined_sizes(op) else ():
                self._bind(self.values[result], tensor_type(result))
        except Unwritable as error:
            self.problems.append(Problem(f"{op.name}: {error}", location_name(op)))

    def _parts(self, op: CompositeOp) -> None:
        """Write the operations of which a composite one is made, which then stand before it."""
        before = op.prev_op
        results = op.decompose(Build(op))
        part = op.prev_op
        inserted: list[Operation] = []
        while part is not None and part is not before:
            inserted.append(part)
            part = part.prev_op
        for part in reversed(inserted):
            self._write(part)
        self.values.update((old, self.values[new]) for old, new in zip(
            op.results, results, strict=True) if new in self.values)

    def _define(self, op: SizeOp) -> None:
        flat = self.call("reshape.default", self.values[op.operands[0]], [-1])
        for k, symbol in enumerate(defined_sizes(op)):
            element = self.call("select.int", flat, 0, k)
            self.sizes[symbol] = self.call("_local_scalar_dense.default", element)

    def constant(self, op: ConstantOp) -> Any:
        """The node of a constant: an argument, a number, or what the module holds."""
        if op in self.constants:
            return self.constants[op]
        tensor = to_torch(op.array(self.weights).copy(), "cpu")
        if self.is_function and not tensor.dim():
            return self.call("full.default", [], tensor.item(), dtype=tensor.dtype)
        name = f"constant_{len(list(self.root.buffers()))}"
        self.root.register_buffer(name, tensor)
        return self.graph.get_attr(name)

    # ------------------------------------------------------------------ nodes
    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of an ATen operator by its name and overload."""
        target = self.aten
        for part in name.split("."):
            target = getattr(target, part)
        return self.graph.call_function(target, args, kwargs)

    def operand(self, op: Operation, k: int = 0) -> Any:
        return self.values[op.operands[k]]

    def operands(self, op: Operation) -> list[Any]:
        return [self.values[value] for value in op.operands]

    def dtype(self, value: SSAValue) -> Any:
        """The torch.dtype of a value. Raises Unwritable for one that PyTorch lacks."""
        return self.dtype_of(tensor_type(value))

    def dtype_of(self, type_: TensorType) -> Any:
        name = type_.dtype.name
        found = getattr(torch_module(), {"bool": "bool"}.get(name, name), None)
        if found is None:
            raise Unwritable(f"PyTorch has no elements of {name}")
        return found

    def cast(self, node: Any, dtype: Any) -> Any:
        return self.call("_to_copy.default", node, dtype=dtype)

    def shape(self, sizes: Sequence[Size]) -> list[Any]:
        return [self.size(size) for size in sizes]

    # ------------------------------------------------------------------ sizes
    def size(self, size: Size) -> Any:
        """A size as an integer, or as a node that computes it."""
        if Expr.of(size).symbols & self.counts.keys():
            raise Unwritable(f"its size {size} depends on the number of an iteration")
        return self.number(size)

    def number(self, size: Size) -> Any:
        """The same, or a tensor i64[] if the number of an iteration is in it."""
        expr = Expr.of(size)
        if expr.constant is not None:
            return expr.constant
        total: Any = None
        for monomial, factor in expr.terms:
            term: Any = factor
            for atom in monomial:
                term = self._python("mul", term, self._atom(atom)) if term != 1 else (
                    self._atom(atom))
            total = term if total is None else self._python("add", total, term)
        return total

    def _atom(self, atom: Atom) -> Any:
        if isinstance(atom, Call):
            args = [self.number(arg) for arg in atom.args]
            if atom.op in ("max", "min"):
                for arg in atom.args:
                    self.size(arg)  # no tensor
                torch = torch_module()
                return self.graph.call_function(getattr(torch, f"sym_{atom.op}"), tuple(args))
            return self._python({"floordiv": "floordiv", "mod": "mod"}[atom.op], *args)
        if atom in self.counts:
            return self.counts[atom]
        if atom not in self.sizes:
            raise Unwritable(f"the size {atom.name} is no dim of an input")
        return self.sizes[atom]

    def _python(self, name: str, *args: Any) -> Any:
        function = getattr(importlib.import_module("operator"), name)
        return self.graph.call_function(function, args)


def _linear(size: Expr) -> tuple[Symbol | None, int]:
    """The symbol s and the factor a of a size a*s + b; None for other sizes."""
    terms = [(monomial, factor) for monomial, factor in size.terms if monomial]
    if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][1] < 1:
        return None, 1
    [(atom,), factor] = terms[0]
    return (atom, factor) if isinstance(atom, Symbol) else (None, 1)


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text and not text[0].isdigit() else f"input_{text}"
