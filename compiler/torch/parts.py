"""Compiled parts of PyTorch graphs, combined with parts that run eagerly.

The module can be imported without torch.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from compiler.api import compile as compile_model
from compiler.diagnostics import StrataError
from compiler.executable import Executable
from compiler.faults import CompilerFault
from compiler.frontend import MemoryModel
from compiler.frontend.torch.captured_graph import (
    CapturedGraph,
    given_symbols,
    is_integer,
    output_nodes,
)
from compiler.frontend.torch.contents import Contents, real_view
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.memory.memory_order import in_memory_order
from compiler.torch.identity import identity_of
from compiler.torch.messages.eager import COMPILED, name_eager
from compiler.torch.messages.logs import show_code
from compiler.torch.reordered import Reordered
from compiler.torch.results import Bindings, Results, computed, is_complex, is_plain
from compiler.torch.signs import Signs, for_negative, negative_when_captured
from compiler.torch.views import split_views
from compiler.torch.weights import items_at, may_change
from dialects.strata.assumptions import SizeError

log = logging.getLogger("strata")

Run = Callable[..., Any]

PART, MODEL = "strata_part", "graph.pt2"
"""The prefix of the names of compiled parts of a graph, and the name of a part as a model."""


def in_parts(
    graph: Any, bad: set[Any], weights: Mapping[str, Any], options: Mapping[str, Any]
) -> Run:
    """The graph with everything between bad nodes replaced by compiled parts."""
    partitioners = torch_module("torch.fx.passes.infra.partitioner")
    names = {n.name for n in bad}
    whole = copy.deepcopy(graph)
    partitioner = partitioners.CapabilityBasedPartitioner(
        whole, _Supported(names), allows_single_node_partition=True)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions(), prefix=PART)
    for node in list(fused.graph.nodes):
        if node.op != "call_module" or not str(node.target).startswith(PART):
            continue
        module = getattr(fused, node.target)
        inner = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        fixed = {mine: weights[given.name] for mine, given in zip(inner, node.args, strict=True)
                 if given.name in weights}
        part = compile_part(module, fixed, options)
        if part is not None:
            module.forward = part
    return fused.forward


@dataclass
class _Supported:
    """The nodes that a compiled part may contain: supported tensor operators and getitem.

    Arithmetic on sizes stays outside.
    """

    bad: set[str]

    def is_node_supported(self, submodules: Mapping[str, Any], node: Any) -> bool:
        if node.op != "call_function" or node.name in self.bad:
            return False
        meta = node.meta.get("val")
        if getattr(node.target, "__name__", "") == "getitem":
            return node.args[0].name not in self.bad and self.is_node_supported({}, node.args[0])
        return isinstance(meta, (list, tuple)) or hasattr(meta, "dtype")


def compile_part(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Run | None:
    """A graph all of whose nodes can be imported, compiled; None, and a warning, if it is not."""
    try:
        return make_part(graph, weights, options)
    except (StrataError, CompilerFault) as error:
        name_eager([n.name for n in graph.graph.nodes if n.op == "call_function"], str(error))
        return None


def make_part(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Run | None:
    """Compile a graph; None for one that computes no tensor.

    Raises StrataError if it cannot be imported or compiled, CompilerFault for a fault of the
    compiler.
    """
    views = split_views(graph)
    if views is None:
        return _make_part(graph, weights, options)
    part = _make_part(views.inner, weights, options)
    return None if part is None else Viewed(part, views.outer, returns_one(graph))


def _make_part(
    graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]
) -> Part | Reordered | None:
    ordered = in_memory_order(graph, weights)
    if ordered is None:
        return _compiled(graph, weights, options)
    part = _compiled(ordered.graph, weights, options)
    return part and Reordered(part, ordered.arguments, ordered.results, returns_one(graph))


def _compiled(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Part | None:
    outputs = computed([_meta(v) for v in output_nodes(graph)], given_symbols(graph.graph))
    if not outputs:
        return None
    captured = CapturedGraph(graph, weights, outputs, frozenset(
        name for name, tensor in weights.items() if may_change(tensor)),
        identity_of(graph, weights))
    if not any(map(is_integer, graph.graph.nodes)):
        return _part(captured, options)
    part = _part(for_negative(captured, negative_when_captured(graph)), options)
    part.signs = Signs(captured, lambda other: _part(other, options))
    return part


def _part(captured: CapturedGraph, options: Mapping[str, Any]) -> Part:
    executable = compile_model(MemoryModel(MODEL, captured), **_own_dump(options))
    part = Part.of(captured, executable)
    log.debug("strata: a part of a graph is compiled", extra={COMPILED: part})
    show_code(executable)
    return part


def _own_dump(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with a separate dump folder for this graph, if they request a dump."""
    folder = options.get("dump_dir")
    if folder is None:
        return options
    from compiler.instrument.dump_folder import folder_of_graph

    return {**options, "dump_dir": folder_of_graph(Path(folder))}


_shape = attrgetter("shape")


def returns_one(graph: Any) -> bool:
    """Whether a graph returns a value that is not in a tuple."""
    found = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    return not isinstance(found, (list, tuple))


def _meta(node: Any) -> Any:
    return node.meta.get("val") if hasattr(node, "meta") else node


@dataclass
class Part:
    """A compiled graph, called as the graph is.

    `given`: the numbers of the arguments of the compiled code; the others are weights and sizes.
    `has_integers`: whether some of these are integers, not tensors. `on_gpu`: whether all tensors
    among them are on the GPU. `donated`: the arguments of the compiled code whose memory its
    results may have. For sizes that the compiled code does not fit, the captured graph itself runs.
    `watch`: is told the arguments of the compiled code at each call, if there is one.
    """

    captured: CapturedGraph
    executable: Executable
    given: list[int]
    results: Results
    single: bool
    on_gpu: bool
    has_integers: bool = False
    donated: Sequence[int] = ()
    watch: Callable[[Sequence[Any]], None] | None = None
    signs: Signs[Part] | None = None
    """The code for integers of other signs, if there are integers."""

    @staticmethod
    def of(captured: CapturedGraph, executable: Executable) -> Part:
        graph = captured.module
        nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
        names = set(executable.signature.input_names)
        given = [k for k, n in enumerate(nodes) if n.name in names]
        tensors = [k for k in given if hasattr(_meta(nodes[k]), "dtype")]
        numbers = [(k, _meta(n).node.expr) for k, n in enumerate(nodes)
                   if type(_meta(n)).__name__ == "SymInt"]
        bindings = Bindings(numbers, given, executable.signature.input_types)
        bindings.check([_meta(nodes[k]) for k in given])
        on_gpu = bool(tensors) and all(_meta(nodes[k]).is_cuda for k in tensors)
        results = Results([_meta(v) for v in output_nodes(graph)], captured.results, bindings)
        return Part(captured, executable, given, results, returns_one(graph), on_gpu,
                    len(tensors) < len(given))

    def with_weights(self, weights: Mapping[str, Any], changed: Collection[str]) -> Part | None:
        """The same code for other weights, of which those `changed` have other values or places.

        None if the code depends on values that have changed.
        """
        if not self.captured.parameters.issuperset(changed):
            return None
        captured = replace(self.captured, weights=weights)
        tensors = captured.tensors()
        names = self.captured.parameters if tensors else frozenset(changed)
        executable = self.executable.with_parameters(
            MemoryModel(MODEL, captured), Contents(weights, names), tensors)
        if executable is None:
            return None
        return replace(self, captured=captured, executable=executable,
                       signs=self.signs and self._signs_with(weights, changed))

    def _signs_with(self, weights: Mapping[str, Any], changed: Collection[str]) -> Signs[Part]:
        """The code for other signs, as far as it takes these weights."""
        assert self.signs is not None
        known = {names: part and part.with_weights(weights, changed)
                 for names, part in self.signs.known.items()}
        return Signs(replace(self.signs.captured, weights=weights), self.signs.compile,
                     {names: part for names, part in known.items() if part is not None})

    def write_to(self, arguments: Sequence[int]) -> None:
        """Let the last results be computed in place in arguments, as far as the target supports
        it.
        """
        places = {k: n for n, k in enumerate(self.given)}
        first = len(self.results.outputs) - len(arguments)
        self.executable.loaded.donate({
            n: places[arguments[k - first]] for n, k in enumerate(self.results.tensors)
            if k >= first and arguments[k - first] in places
            and not is_complex(self.results.outputs[k])})

    def with_donated(self, arguments: Collection[int]) -> Part:
        """The same code for arguments of which these are not used after a call, and share memory
        with no others."""
        numbers = [n for n, k in enumerate(self.given) if k in arguments]
        if self.on_gpu:
            numbers = [*self.executable.loaded.spare(numbers)]
        return replace(self, donated=numbers)

    @property
    def overwritten(self) -> list[int]:
        """The arguments of the graph in whose memory results may lie."""
        return [self.given[n] for n in self.donated]

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The fastest function for running on arguments in place.

        A graph without named sizes is always called with arguments of the same kinds, which Dynamo
        guards.
        """
        run, watch = self._run, self.watch
        if watch is None:
            return run

        def watched(values: Sequence[Any]) -> Sequence[Any]:
            watch(values)
            return run(values)

        return watched

    @property
    def _run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        loaded = self.executable.loaded
        if not (loaded.takes_gpu_tensors and self.on_gpu):
            return lambda values: self.executable(*values)
        return loaded.run if self.executable.signature.symbols() else loaded.run_alike

    @cached_property
    def complex_places(self) -> list[int]:
        """Which of the arguments of the compiled code are complex; it takes them as reals."""
        nodes = [n for n in self.captured.module.graph.nodes if n.op == "placeholder"]
        return [n for n, k in enumerate(self.given) if is_complex(_meta(nodes[k]))]

    @cached_property
    def is_plain(self) -> bool:
        """Whether the results of the compiled code are returned unchanged."""
        return self.on_gpu and self.results.are_plain

    @cached_property
    def direct(self) -> Callable[[Sequence[Any]], list[Any] | None] | None:
        """A call that passes nothing but addresses to the compiled code; None without such.

        It returns None if an argument has gaps in memory, or sizes do not fit.
        """
        loaded, maker = self.executable.loaded, self.results.maker
        if not loaded.takes_addresses or maker is None or self.executable.structures or (
                self.has_integers or self.watch):
            return None
        nodes = [n for n in self.captured.module.graph.nodes if n.op == "placeholder"]
        if not all(is_plain(_meta(nodes[k])) for k in self.given):
            return None
        count, chosen, sizes = len(self.given), items_at(self.given), self._sizes
        run = loaded.caller(maker, torch_module().Tensor.data_ptr, _shape, self.donated)
        placed = self.results.among_constants

        def call(arguments: Sequence[Any]) -> list[Any] | None:
            values = chosen(arguments) if count < len(arguments) else arguments
            for value in values:
                if not value.is_contiguous():
                    return None
            try:
                made = run(sizes(arguments), values)
                return made if placed is None else placed(made)
            except SizeError:
                return None

        return call

    @property
    def _sizes(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """What decides all shapes among the arguments of a call."""
        symbols, given = self.executable.signature.symbols(), self.given
        known = {symbol: k for k, symbol in self.results.bindings.symbols}
        if known.keys() >= set(symbols):
            return items_at([known[symbol] for symbol in symbols])
        return lambda arguments: [arguments[k].shape for k in given]

    def __call__(self, *arguments: Any) -> Any:
        if self.direct is not None:
            made = self.direct(arguments)
            if made is not None:
                return made[0] if self.single else made
        try:
            given = [arguments[k] for k in self.given]
            for place in self.complex_places:
                given[place] = real_view(given[place])
            if self.has_integers:
                given = [np.array(v) if isinstance(v, int) else v for v in given]
            made = self.run(given)
        except SizeError as error:
            other = self.signs and self.signs.find(arguments, self.captured.negative)
            if other is not None:
                return other(*arguments)
            log.warning("strata: a graph runs eagerly: %s", error)
            return self.captured.module.forward(*arguments)
        if self.is_plain:
            return made[0] if self.single else made
        results = self.results(made, arguments)
        return results[0] if self.single else tuple(results)


@dataclass
class Viewed:
    """A graph some of whose results are views: `outer` takes them from what `inner` returns."""

    inner: Part | Reordered
    outer: Run
    single: bool = False

    def with_weights(self, weights: Mapping[str, Any], changed: Collection[str]) -> Viewed | None:
        """As for parts."""
        inner = self.inner.with_weights(weights, changed)
        return inner and replace(self, inner=inner)

    def with_donated(self, arguments: Collection[int]) -> Viewed:
        """As for parts."""
        return replace(self, inner=self.inner.with_donated(arguments))

    @property
    def overwritten(self) -> Sequence[int]:
        """As for parts."""
        return self.inner.overwritten

    def __call__(self, *arguments: Any) -> Any:
        results = self.outer(*arguments, *self.inner(*arguments))
        return results[0] if self.single else results


def with_weights(
    run: Run, weights: Mapping[str, Any], changed: Collection[str]
) -> Run | None:
    """The same code with other weights; None if it must be compiled again."""
    if isinstance(run, (Part, Reordered, Viewed)):
        return run.with_weights(weights, changed)
    return None
