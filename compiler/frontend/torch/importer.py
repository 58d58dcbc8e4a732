"""Imports a program of `torch.export` as a module with `strata.func @main` over graph operations.

The input is the program and the user's options; the result is the module, its weights and its name.
Integers that the program computes from shapes become size expressions over the names of the inputs'
sizes. Every operation has the path of its PyTorch module and its node as location.

Problems are collected and raised together, each with the line of the model that caused it. Nodes
that depend on a bad node are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import SSAValue

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, ImportOptions
from compiler.frontend.choices import Choices
from compiler.frontend.faults import Faults
from compiler.frontend.torch.captured_graph import CapturedGraph, given_symbols, is_integer
from compiler.frontend.torch.core.decompose import decompose
from compiler.frontend.torch.core.flex import expand_flex_attention
from compiler.frontend.torch.drawing import drawing_importers
from compiler.frontend.torch.guards import Relation, guards_of, relations
from compiler.frontend.torch.inputs import read_options
from compiler.frontend.torch.memory import strided_places
from compiler.frontend.torch.memory.memory_order import Ordered, in_memory_order
from compiler.frontend.torch.ops import OpImporter, importers, marked
from compiler.frontend.torch.provenance import path_of, source_of
from compiler.frontend.torch.signature import Signature, signature_of
from compiler.frontend.torch.sizes import Sizes, dim_names
from compiler.frontend.torch.splits import unsupported
from compiler.frontend.torch.walk import Importer
from compiler.io import structures
from dialects.strata.func import main_function
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr

if TYPE_CHECKING:
    from compiler.layers.repeated import Repeated

log = logging.getLogger("strata")

def import_program(
    program: Any, name: str, file: str, options: ImportOptions, in_order: bool = False
) -> ImportedModel:
    """Import an ExportedProgram. `file` is its name in messages. Raises StrataError.

    `in_order`: inputs and outputs have the order in which the memory of the example inputs and of
    their results holds the dims, which the module states (`compiler/io/structures.py`).
    """
    names, guards = _dim_names(program), guards_of(program.graph)
    known = importers_alone(options)
    plain, faults = decompose(program, known), Faults(file)
    expand_flex_attention(plain.graph_module)
    sizes = Sizes(names, read_options(plain.graph, names, options, faults),
                  given_symbols(plain.graph))
    signature = signature_of(plain, faults)
    faults.raise_any()
    guarded = relations(guards, plain.graph, sizes)
    ordered = in_memory_order(plain.graph_module, signature.weights) if in_order else None
    if ordered is None:
        return import_graph(plain.graph_module, signature, sizes, faults, name,
                            plain.range_constraints, guarded, options, alone=True)
    named = replace(signature, labels={**signature.labels, **ordered.labels})
    model = import_graph(ordered.graph, named, sizes, faults, name, plain.range_constraints,
                         guarded, options, alone=True)
    _state_orders(model.module, ordered)
    return model


def _state_orders(module: ModuleOp, ordered: Ordered) -> None:
    """Say in the module in which order its inputs and outputs hold their dims."""
    func = main_function(module)
    ranks = dict(zip(func.input_names, map(_rank, func.body.block.args), strict=True))
    ranks |= dict(zip(func.output_names, map(_rank, func.return_op.operands), strict=True))
    orders = {name: [*order, *range(len(order), ranks[name])]  # complex numbers have a dim more
              for name, order in ordered.by_name().items() if name in ranks}
    module.attributes[structures.ATTRIBUTE] = DictionaryAttr({
        name: StringAttr(structures.order_text(order)) for name, order in orders.items()})


def _rank(value: SSAValue) -> int:
    return value.type.rank if isinstance(value.type, TensorType) else 0


def _dim_names(program: Any) -> dict[str, str]:
    """SymPy symbol -> the user's name of a size. All shapes of a program share one ShapeEnv."""
    for node in program.graph.nodes:
        for size in getattr(node.meta.get("val"), "shape", ()):
            if not isinstance(size, int):
                return dim_names(size.node.shape_env)
    return {}


def import_captured(
    captured: CapturedGraph, name: str, file: str, options: ImportOptions | None = None
) -> ImportedModel:
    """Import a graph of `torch.compile`. Dynamo guards its sizes. Raises StrataError."""
    options = options or ImportOptions()
    model = None
    if options.layers and not options.plugins and not _has_complex(captured.module.graph):
        from compiler.frontend.torch.layers import find_layers

        repeated = find_layers(captured.module.graph, captured.parameters)
        model = repeated and _import_some(captured, name, file, options, repeated)
    if model is None:
        signature, sizes = _captured(captured, options)
        model = import_graph(captured.module, signature, sizes, Faults(file), name, {}, (), options)
    model.weights.version_of = captured.values().version_of
    tensors = captured.tensors()
    if tensors:
        model.weights.hold(tensors)
        model.weights.held |= model.weights.arrays.keys()
    return model


def _has_complex(graph: Any) -> bool:
    """Whether a tensor of a graph is complex. Equal parts of such a graph are not sought."""
    return any(getattr(getattr(n.meta.get("val"), "dtype", None), "is_complex", False)
               for n in graph.nodes)


def _captured(captured: CapturedGraph, options: ImportOptions) -> tuple[Signature, Sizes]:
    fixed = {size: Expr.of(value) for size, value in options.dims.items()}
    unread = [n.name for n in captured.module.graph.nodes if is_integer(n) and not n.users]
    signature = Signature(captured.weights, captured.results, {}, captured.parameters, unread,
                          captured.negative)
    return signature, Sizes(fixed=fixed, given=given_symbols(captured.module.graph))


def _import_some(
    captured: CapturedGraph, name: str, file: str, options: ImportOptions, repeated: Repeated
) -> ImportedModel | None:
    """Import a few of the equal parts of a graph, and call what they become for all of them; None
    if they have faults, or do not become one function."""
    from compiler.frontend.torch.layers import expand_layers
    from compiler.layers.repeated import NotAlike

    signature, sizes = _captured(captured, options)
    importer = Importer(captured.module, signature, sizes, Faults(file),
                        operators=importers(options.plugins), repeated=repeated)
    importer.build.choices = Choices(options.outcomes)
    try:
        importer.run({})
        nodes = expand_layers(importer.result, importer.build.weights, signature, repeated,
                              importer.nodes)
    except (NotAlike, StrataError) as why:
        log.debug("equal parts of the graph are imported one by one: %s", why)
        return None
    return ImportedModel(importer.result, importer.build.weights, name, nodes=tuple(nodes))


def find_bad(
    module: Any, weights: Mapping[str, Any], plugins: tuple[ModuleType, ...] = ()
) -> dict[Any, str]:
    """The nodes of a graph that cannot be imported, each with a description of the problem."""
    faults, sizes = Faults("the graph"), Sizes(given=given_symbols(module.graph))
    importer = Importer(module, Signature(weights, []), sizes, faults, lenient=True,
                        operators=importers(plugins))
    importer.walk(module, importer.values)
    unknown = {n: f"{unsupported(op)}{_in_brackets(source_of(n))}"
               for op, nodes in importer.unsupported.items() for n in nodes}
    noted = {p.node: p.what for p in faults.problems}
    return {n: unknown.get(n) or noted.get(path_of(n), "") for n in importer.bad}


def _in_brackets(place: str) -> str:
    return f" ({place})" if place else ""


def importers_alone(options: ImportOptions) -> dict[str, OpImporter]:
    """Operator name -> its importer, for programs that PyTorch does not run."""
    return {**drawing_importers(), **marked(strided_places), **importers(options.plugins)}


def import_graph(
    module: Any, signature: Signature, sizes: Sizes, faults: Faults, name: str,
    ranges: Mapping[Any, Any], guards: Sequence[Relation] = (),
    options: ImportOptions | None = None, alone: bool = False,
) -> ImportedModel:
    """Import a graph of ATen operators. Raises StrataError with every problem found. `alone`:
    whether nothing runs what is refused."""
    options = options or ImportOptions()
    known = importers_alone(options) if alone else importers(options.plugins)
    importer = Importer(module, signature, sizes, faults, alone=alone, operators=known)
    importer.build.choices = Choices(options.outcomes)
    importer.run(ranges, guards)
    return ImportedModel(importer.result, importer.build.weights, name,
                         nodes=tuple(importer.nodes))
