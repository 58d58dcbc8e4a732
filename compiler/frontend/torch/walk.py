"""The walk over a graph of ATen operators, which imports its nodes one after the other.

Integers that the program computes from shapes become size expressions over the names of the inputs'
sizes. Every operation has the path of its PyTorch module and its node as location. Nodes that
depend on a bad node are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ModuleOp

from compiler.diagnostics import count_of
from compiler.frontend.builder import Builder
from compiler.frontend.draws import Draws
from compiler.frontend.faults import LEVEL, Fault, Faults, Skip
from compiler.frontend.origins import ModelNode, node_of
from compiler.frontend.torch.arguments import Arguments, Missing
from compiler.frontend.torch.captured_graph import is_integer
from compiler.frontend.torch.complex import complex_importers
from compiler.frontend.torch.complex.values import Complex, as_given, is_complex, is_complex_tensor
from compiler.frontend.torch.conversion import as_element
from compiler.frontend.torch.core.control import CONTROL, as_tensor
from compiler.frontend.torch.core.decompose import NO_EFFECT
from compiler.frontend.torch.core.foreign import foreign
from compiler.frontend.torch.core.in_place import without_mutation
from compiler.frontend.torch.core.numbers import READS_NUMBER, Numbers, operator_name, wholes_of
from compiler.frontend.torch.guards import Relation, check_guards
from compiler.frontend.torch.inputs import Inputs, assumptions, check_fixed
from compiler.frontend.torch.library import FOREIGN
from compiler.frontend.torch.node import Node, example_of
from compiler.frontend.torch.ops import argument_count, check_left_out, importers
from compiler.frontend.torch.provenance import path_of, scope_of, source_of
from compiler.frontend.torch.reals import check_reals, is_real
from compiler.frontend.torch.signature import Signature
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.torch.splits import unsupported
from compiler.frontend.torch.tensors import constant_of, part_type_of, type_of
from compiler.frontend.values import Value
from dialects.graph.base import ShapeError
from dialects.strata.func import FuncOp
from dialects.strata.types import TensorType
from dialects.strata.weights import WeightStore
from dialects.text.syntax import identifier

if TYPE_CHECKING:
    from compiler.layers.repeated import Repeated

WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
"""Operators that only run a graph, which is imported in their place."""


@dataclass
class Importer:
    """The walk over the nodes of one program.

    `bad`: the nodes that have a problem. With `lenient`, the walk continues after a bad node as if
    its results were arguments, so that all bad nodes are found. `alone`: nothing runs bad nodes.
    """

    module: Any
    signature: Signature
    sizes: Sizes
    faults: Faults
    lenient: bool = False
    alone: bool = False
    operators: Mapping[str, Callable[..., Any]] = field(default_factory=importers)
    repeated: Repeated | None = None
    """Equal parts of the graph, of which only a few are imported."""
    bad: list[Any] = field(default_factory=list[Any])
    unsupported: dict[str, list[Any]] = field(default_factory=dict[str, "list[Any]"])
    nodes: list[ModelNode] = field(default_factory=list[ModelNode])

    def __post_init__(self) -> None:
        left_out = self.repeated.unused() if self.repeated else ()
        inputs = Inputs(self.module.graph, self.signature, self.sizes, self.faults, left_out)
        types = inputs.arguments()
        self.function = FuncOp.of("main", [self.signature.shown(n) for n in types],
                                  list(types.values()))
        self.result = ModuleOp([self.function])
        self.build = Builder(self.function.body.block, WeightStore())
        self.draws = Draws(self.build, self.function) if self.alone else None
        self.build.draws = self.draws
        self.values: dict[str, Any] = dict(inputs.constants(self.build))
        for name, argument in zip(types, self.function.body.block.args, strict=True):
            argument.name_hint = identifier(name)
            self.values[name] = self.build.value(argument)
        self.numbers = Numbers(self.build, self.sizes,
                               wholes_of(self.module.graph, self.operators))
        inputs.bind(self.build, self.values, self.numbers.wholes)
        for node in self.module.graph.nodes:
            if node.op == "placeholder" and node.name in self.values:
                self.values[node.name] = as_given(self.values[node.name], node.meta.get("val"))
        for node in filter(is_integer, self.module.graph.nodes):
            value = self.values.pop(node.name, None)
            whole = value and self.numbers.argument(node, value)
            if whole is not None:
                self.values[node.name] = whole

    def run(self, ranges: Mapping[Any, Any], guards: Sequence[Relation] = ()) -> FuncOp:
        """The program's function. Raises StrataError."""
        check_fixed(ranges, self.sizes, self.faults)
        relied_on = check_guards(guards, self.faults)
        self.faults.raise_any()
        outputs = self.walk(self.module, self.values)
        self._report_unsupported()
        named = self._named_outputs(outputs)
        self.faults.raise_any()
        self.function.finish(list(named), [self.build.ssa(v) for v in named.values()])
        self.build.finish()
        if self.draws is not None:
            self.draws.finish()
        self._assume(ranges, relied_on)
        return self.function

    def _assume(self, ranges: Mapping[Any, Any], guards: Sequence[Relation]) -> None:
        block = self.function.body.block
        bound = {s for a in block.args for size in getattr(a.type, "shape", ())
                 for s in size.symbols}
        first = block.first_op
        assert first is not None
        block.insert_ops_before(assumptions(ranges, guards, self.sizes, bound), first)

    def _named_outputs(self, outputs: Sequence[Any]) -> dict[str, Value]:
        """The results that are tensors, each under a unique name."""
        named: dict[str, Value] = {}
        for k in self.signature.results:
            value = outputs[k][1]
            value = value.view() if isinstance(value, Complex) else as_tensor(self.build, value)
            if isinstance(value, (Value, Missing)):
                own = self.signature.shown(outputs[k][0])
                name, count = own, 1
                while name in named:
                    name, count = f"{own}_{count}", count + 1
                if isinstance(value, Value):
                    named[name] = value
        return named

    # ------------------------------------------------------------------ nodes
    def walk(self, module: Any, values: dict[str, Any]) -> list[tuple[str, Any]]:
        """Import a graph's nodes. Returns its outputs, each with the name of its node."""
        outputs: list[tuple[str, Any]] = []
        for node in module.graph.nodes:
            if node.op == "output":
                flat = _flatten(node.args[0])
                outputs = [(getattr(n, "name", "constant"), _output(n, values)) for n in flat]
            elif node.op == "get_attr":
                self._attribute(module, node, values)
            elif self.repeated is not None and node.name in self.repeated.stand_ins:
                values[node.name] = values[self.repeated.stand_ins[node.name]]
            elif node.op == "call_function":
                found = values[node.name] = self._try(node, values)
                self.nodes.append(node_of(path_of(node), operator_name(node), [found],
                                          scope_of(node), source_of(node)))
        return outputs

    def _attribute(self, module: Any, node: Any, values: dict[str, Any]) -> None:
        """Resolve an attribute of a module: a submodule, or a tensor, which becomes a constant.

        A tensor that is not supported has no value if the walk is lenient, so that the nodes that
        use it are bad.
        """
        found = module
        for part in node.target.split("."):
            found = getattr(found, part)
        try:
            values[node.name] = as_given(constant_of(self.build, found, node.target), found) if (
                hasattr(found, "dtype")) else found
        except Fault as fault:
            if not self.lenient:
                self.faults.add(f"constant '{node.target}': {fault.what}", hint=fault.hint)
                values[node.name] = Missing()

    def _try(self, node: Any, values: dict[str, Any]) -> Any:
        """A node's result; Missing if it has a problem, which is noted."""
        try:
            return self._import(node, values)
        except (Fault, ShapeError) as error:
            what, hint = (error.what, error.hint) if isinstance(error, Fault) else (str(error), "")
            place = source_of(node)
            self.faults.add(f"{operator_name(node)}: {what}{f' ({place})' if place else ''}",
                            path_of(node), LEVEL, hint)
            self.bad.append(node)
        except Skip:
            pass
        return self._missing(node)

    def _missing(self, node: Any) -> Any:
        """The result of a bad node: Missing, or new arguments if the walk is lenient."""
        meta = node.meta.get("val")
        if not self.lenient or meta is None:
            return Missing()
        if isinstance(meta, dict):
            return {k: self._stand_in(v) for k, v in cast(Mapping[str, Any], meta).items()}
        found = [self._stand_in(m) for m in _listed(meta)]
        return found if isinstance(meta, (list, tuple)) else found[0]

    def _stand_in(self, tensor: Any) -> Any:
        try:
            type_ = type_of(tensor, self.sizes)
        except (Fault, AttributeError):
            return Missing()
        block = self.function.body.block
        return as_given(self.build.value(block.insert_arg(type_, len(block.args))), tensor)

    def _import(self, node: Any, values: dict[str, Any]) -> Any:
        op, meta = without_mutation(node) or operator_name(node), node.meta.get("val")
        function = self.operators.get(op)
        size = type(meta).__name__ in ("SymInt", "int") and op != "aten.item.default"
        checks = op in NO_EFFECT or type(meta).__name__ in ("SymBool", "bool")
        known = function is not None or op in complex_importers() or is_real(op, meta) or op in (
            *WRAPPERS, *CONTROL, FOREIGN, "getitem", *READS_NUMBER)
        if not known and not size and not checks:
            self.unsupported.setdefault(_told(node, op), []).append(node)
            self.bad.append(node)
            return self._missing(node)
        if any(isinstance(values.get(n.name), Missing) for n in node.all_input_nodes):
            raise Skip
        arguments = Arguments(values, self.sizes)
        if op in READS_NUMBER:
            return self.numbers.read(node, arguments.value(node.args[0]))
        if size:
            return self.numbers.integer(node, arguments)
        if op == "getitem":
            return _item(arguments.value(node.args[0]), node)
        if op in WRAPPERS:
            return self._inline(node, arguments)
        if op in (*CONTROL, FOREIGN) and any(
                is_complex(values.get(n.name)) for n in node.all_input_nodes):
            raise Fault("complex numbers are not supported here")
        if op in CONTROL:
            return self._controlled(node, op, arguments)
        if op == FOREIGN:
            self.build.node = path_of(node)
            return foreign(self.build, node, arguments.value)
        if function is None and op not in complex_importers():
            return self.numbers.real(node, arguments) if is_real(op, meta) else (
                self.numbers.condition(node, arguments) if op not in NO_EFFECT else None)
        return self._call(node, op, function, arguments)

    def _inline(self, node: Any, arguments: Arguments) -> list[Any]:
        """The results of the graph that a wrapper runs."""
        given = [arguments.value(a) for a in node.args]
        index = next(k for k, a in enumerate(given) if hasattr(a, "graph"))
        module = given[index]
        names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        results = self.walk(module, dict(zip(names, given[index + 1:], strict=True)))
        return [value for _, value in results]

    def _controlled(self, node: Any, op: str, arguments: Arguments) -> list[Value]:
        """The results of an operator with graphs."""
        self.build.node = path_of(node)
        made = CONTROL[op](self.build, self._inner, [arguments.value(a) for a in node.args])
        for value in made:
            _name_value(value, node.name)
        return made

    def _inner(self, module: Any, values: dict[str, Any]) -> list[tuple[str, Any]]:
        """The same for a graph that an operator holds, whose integers may be computed by a run."""
        integers = [n for n in module.graph.nodes
                    if is_integer(n) and isinstance(values.get(n.name), Value)]
        if integers:
            wholes = wholes_of(module.graph, self.operators)
            self.numbers = replace(self.numbers, wholes={*self.numbers.wholes, *wholes})
            for node in integers:
                whole = self.numbers.inner_argument(node, values.pop(node.name), wholes)
                if whole is not None:
                    values[node.name] = whole
        return self.walk(module, values)

    def _call(
        self, node: Any, op: str, function: Callable[..., Any] | None, arguments: Arguments
    ) -> Any:
        self.build.node = path_of(node)
        several = isinstance(node.meta.get("val"), (list, tuple))
        results, unknown = self._result_types(node.meta.get("val"))
        first = _listed(node.meta.get("val"))[0] if node.meta.get("val") is not None else None
        seen = Node(self.build.node, self.build, op, results, _used(node, several),
                    is_complex_tensor(first), example_of(node.args), self.alone)
        given = arguments.of_schema(node)
        if seen.is_complex or any(map(is_complex, given)):
            function = complex_importers().get(op)
        if function is None:
            raise Fault("complex numbers are not supported" if seen.is_complex or any(
                map(is_complex, given)) else "only complex numbers are supported")
        check_reals(function, given)
        check_left_out(function, node.target._schema, given)
        made = function(seen, *given[:argument_count(function)])
        made = [made] if isinstance(made, (Value, Complex)) else list(made)
        if unknown is not None:
            seen = replace(seen, results=self._bound_types(node.meta.get("val"), made))
        made = _as_promised(seen, made)
        for value in made:
            _name_value(value, node.name)
        return made if several or not made else made[0]

    def _result_types(self, meta: Any) -> tuple[list[TensorType | None], Fault | None]:
        """The types that PyTorch gives the results, and the fault of one that is not supported."""
        types: list[TensorType | None] = []
        unknown: Fault | None = None
        for value in _listed(meta):
            try:
                types.append(part_type_of(value, self.sizes) if hasattr(value, "dtype") else None)
            except Fault as fault:
                types.append(None)
                unknown = fault
        return types, unknown

    def _bound_types(self, meta: Any, made: Sequence[Any]) -> list[TensorType | None]:
        """The types of results whose sizes depend on data, which are those of the values. Raises
        Fault for one that is not supported, or for which PyTorch expects other dims."""
        for tensor, value in zip(_listed(meta), made, strict=False):
            if (dims := len(getattr(tensor, "shape", value.shape))) != value.rank:
                raise Fault(f"PyTorch takes a result of {value.rank} dims for one of {dims}",
                            "count the operator's dim from the first one")
            for size, found in zip(getattr(tensor, "shape", ()), value.shape, strict=False):
                self.sizes.bind_unbacked(size, found)
        types, unknown = self._result_types(meta)
        if unknown is None:
            return types
        raise unknown

    def _report_unsupported(self) -> None:
        """Add one problem per operator, with the first places where the model uses it."""
        for op, nodes in sorted(self.unsupported.items()):
            places = list(dict.fromkeys(place for place in map(source_of, nodes) if place))
            shown = "; ".join(places[:3])
            more = f" and {len(places) - 3} more places" if len(places) > 3 else ""
            used = f"{count_of(nodes, 'use')}" + (f": {shown}{more}" if shown else "")
            self.faults.add(f"operator {unsupported(op)} ({used})", path_of(nodes[0]), LEVEL,
                            hint="write an importer for it in a --plugin file, or let "
                                 "torch.compile(model, backend=\"strata\") run it eagerly")


def _as_promised(n: Node, values: Sequence[Any]) -> list[Any]:
    """The results, cast to the element types that PyTorch gives them."""
    found: list[Any] = []
    for value, type_ in zip(values, n.results, strict=False):
        if type_ is not None and value.rank != type_.rank:
            raise AssertionError(f"{n.op} gives {value.rank} dims instead of {type_.short}")
        found.append(value if type_ is None else as_element(value, type_.element))
    return found


def _item(values: Sequence[Any], node: Any) -> Any:
    """One of several results. Raises Fault for one that the importer does not return."""
    index = node.args[1]
    if isinstance(values, dict) or index < len(values):
        return values[index]
    raise Fault(f"result {index} of {operator_name(node.args[0])} is not supported")


def _output(node: Any, values: Mapping[str, Any]) -> Any:
    return values.get(node.name) if hasattr(node, "name") else node


def _listed(value: Any) -> list[Any]:
    """The elements of a list or tuple; any other value as a list of one element."""
    return list(cast(Sequence[Any], value)) if isinstance(value, (list, tuple)) else [value]


def _flatten(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return [value]
    return [leaf for item in _listed(value) for leaf in _flatten(item)]


def _told(node: Any, op: str) -> str:
    """An operator as users know it: the one that writes into arguments, not PyTorch's wrapper."""
    return str(node.args[0]) if op.startswith("auto_functionalized") and node.args else op


def _used(node: Any, several: bool) -> frozenset[int]:
    if not several:
        return frozenset({0})
    return frozenset(user.args[1] for user in node.users if operator_name(user) == "getitem")


def _name_value(value: Any, name: str) -> None:
    """Use the program's name for a value in the IR, unless it already has one."""
    if isinstance(value, Complex):
        _name_value(value.re, f"{name}_re")
        _name_value(value.im, f"{name}_im")
        return
    if value.ssa is None:
        value.label = value.label or name
    elif value.ssa.name_hint is None:
        value.ssa.name_hint = identifier(name)
