"""`torch.compile(model, backend="strata")`: PyTorch captures, Strata compiles.

TorchDynamo hands over graphs; AOTAutograd makes Core ATen of them, whose only mutations give
arguments their new contents at the end; the PyTorch frontend imports what is before. Operators that
it cannot import run eagerly, between compiled parts, and are named in a warning. Sizes that Dynamo
leaves dynamic become named sizes of the compiled code.

For inference: where gradients are recorded, graphs run eagerly, which is said. Parameters and
buffers become constants of the compiled code, which is made anew when one of them has changed.

`options` of `torch.compile` are those of `compiler.compile`. The target is that of the inputs'
device unless one is given.

The module can be imported without torch.
"""

from __future__ import annotations

import copy
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, is_
from typing import Any

import compiler
from compiler.api import Executable
from compiler.diagnostics import StrataError, count_of
from compiler.faults import CompilerFault
from compiler.frontend import MemoryModel
from compiler.frontend.torch import CapturedGraph
from compiler.frontend.torch.library import torch_module

log = logging.getLogger("strata")

Run = Callable[..., Any]

PART = "strata_part"
"""The names of compiled parts of a graph begin with it."""


def strata(
    graph_module: Any, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Run:
    """The backend. `mode`: as in `compiler/modes.py`; raises StrataError for another one."""
    from compiler.frontend.torch.decompose import decompositions
    from compiler.modes import check_mode

    chosen = dict(options or {})
    if mode is not None:
        check_mode(mode)
        chosen["mode"] = mode

    def infer(graph: Any, inputs: Sequence[Any]) -> Run:
        del inputs
        return _boxed(Program(graph, chosen, _take_writes(graph)))

    compiled = torch_module("torch._dynamo.backends.common").aot_autograd(
        fw_compiler=_train, bw_compiler=_eager, inference_compiler=infer,
        decompositions=decompositions(), keep_inference_input_mutations=True)
    return compiled(graph_module, example_inputs)


def _take_writes(graph: Any) -> list[int]:
    """Let a graph return what it writes into its arguments, such as caches, behind its results.

    Which arguments these are, by number. They are no weights, wherever Dynamo keeps them.
    """
    nodes = list(graph.graph.nodes)
    numbers = {n: k for k, n in enumerate(n for n in nodes if n.op == "placeholder")}
    writes = [n for n in nodes if n.op == "call_function" and n.target == _copy()
              and n.args[0] in numbers]
    written, output = [numbers[n.args[0]] for n in writes], nodes[-1]
    for node in writes:
        node.replace_all_uses_with(node.args[1])
    output.args = ((*output.args[0], *(n.args[1] for n in writes)),)
    for node in writes:
        graph.graph.erase_node(node)
    graph.recompile()
    return written


def _copy() -> Any:
    return torch_module().ops.aten.copy_.default


def _boxed(function: Run) -> Run:
    """As AOTAutograd calls it: with a list of arguments, which it may empty."""
    return torch_module("functorch.compile").make_boxed_func(function)


def _eager(graph: Any, inputs: Sequence[Any]) -> Run:
    del inputs
    return _boxed(graph.forward)


def _train(graph: Any, inputs: Sequence[Any]) -> Run:
    """A graph with gradients."""
    log.warning("strata: gradients are recorded, so the graph runs eagerly; call the model under "
                "torch.no_grad() or torch.inference_mode() to compile it")
    return _eager(graph, inputs)


# ---------------------------------------------------------------------- one graph
@dataclass
class Program:
    """A graph of Core ATen. It is compiled when it is called, for the weights of that call, and
    again after these have changed. `written`: the arguments that its last results go to."""

    graph: Any
    options: Mapping[str, Any]
    written: Sequence[int] = ()
    weights: Weights | None = None
    run: Run | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self.run is None or self.weights is None or not self.weights.are_in(inputs):
            self.run = self._compiled(inputs)
        results = self.run(*inputs)
        return self._write(inputs, results) if self.written else results

    def _compiled(self, inputs: Sequence[Any]) -> Run:
        self.weights = Weights.of(inputs, [k for k, v in enumerate(inputs)
                                           if k not in self.written and is_weight(v)])
        names = [n.name for n in self.graph.graph.nodes if n.op == "placeholder"]
        fixed = {names[k]: inputs[k] for k in self.weights.numbers}
        run = compile_graph(self.graph, fixed, self._options(inputs))
        if isinstance(run, Part):
            run.write_to(self.written)
        return run

    def _write(self, inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        """Give arguments their new contents, all of a type at once; what is left are results.

        Those that the compiled code has written have them already.
        """
        count = len(results) - len(self.written)
        pairs: defaultdict[Any, list[tuple[Any, Any]]] = defaultdict(list)
        done: list[Any] = []
        for number, value in zip(self.written, results[count:], strict=True):
            given = inputs[number]
            if value is given:
                done.append(given)
            else:
                pairs[given.dtype].append((given, value))
        for found in pairs.values():
            torch_module()._foreach_copy_(*map(list, zip(*found, strict=True)))
        torch_module("torch.autograd.graph").increment_version(
            [v for v in done if not v.is_inference()])
        return results[:count]

    def _options(self, inputs: Sequence[Any]) -> dict[str, Any]:
        on_gpu = any(getattr(v, "is_cuda", False) for v in inputs)
        return {"target": "cuda" if on_gpu else "cpu", **self.options}


@dataclass(frozen=True)
class Weights:
    """Arguments that are constants, by `numbers`. `counted`: those of which PyTorch counts how
    often they are written, and `versions`, how often that was."""

    numbers: Sequence[int]
    tensors: Sequence[Any]
    counted: Sequence[Any]
    versions: Sequence[int]

    @staticmethod
    def of(inputs: Sequence[Any], numbers: Sequence[int]) -> Weights:
        tensors = [inputs[k] for k in numbers]
        counted = [v for v in tensors if not v.is_inference()]
        return Weights(numbers, tensors, counted, list(map(_version, counted)))

    def are_in(self, inputs: Sequence[Any]) -> bool:
        """Whether these arguments are the same tensors, and still hold what they held."""
        return all(map(is_, self.tensors, [inputs[k] for k in self.numbers])) and (
            list(map(_version, self.counted)) == self.versions)


_version = attrgetter("_version")


def is_weight(value: Any) -> bool:
    """Whether an argument of a graph is a parameter or buffer, as Dynamo marks them."""
    return hasattr(value, "_dynamo_static_input_type") or type(value).__name__ == "Parameter"


def compile_graph(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Run:
    """The graph compiled, as far as it can be; the rest of it runs eagerly and is named."""
    from compiler.frontend.torch.importer import find_bad

    try:
        bad = find_bad(graph, weights)
    except StrataError as error:
        _name_eager(["the whole graph"], str(error))
        return graph.forward
    if not bad:
        part = compile_part(graph, weights, options)
        return graph.forward if part is None else part
    _name_eager([n.name for n in bad], "; ".join(sorted(set(bad.values()))))
    return _in_parts(graph, set(bad), weights, options)


def _name_eager(names: Sequence[str], why: str) -> None:
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    log.warning("strata: %s eagerly: %s: %s", "1 node runs" if len(names) == 1 else
                f"{count_of(names, 'node')} run", shown, why)


# ---------------------------------------------------------------------- parts
def _in_parts(
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
    """What a compiled part may hold: tensor operators that can be imported, and what takes their
    results apart. Arithmetic of sizes stays outside."""

    bad: set[str]

    def is_node_supported(self, submodules: Mapping[str, Any], node: Any) -> bool:
        del submodules
        if node.op != "call_function" or node.name in self.bad:
            return False
        meta = node.meta.get("val")
        if getattr(node.target, "__name__", "") == "getitem":
            return node.args[0].name not in self.bad and self.is_node_supported({}, node.args[0])
        return isinstance(meta, (list, tuple)) or hasattr(meta, "dtype")


def compile_part(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Run | None:
    """A graph all of whose nodes can be imported, compiled; None, and a warning, if it is not."""
    outputs = _outputs(graph)
    tensors = [k for k, v in enumerate(outputs) if hasattr(_meta(v), "dtype")]
    if not tensors:
        return None
    model = MemoryModel("graph.pt2", CapturedGraph(graph, weights, tensors))
    try:
        executable = compiler.compile(model, **options)
    except (StrataError, CompilerFault) as error:
        _name_eager([n.name for n in graph.graph.nodes if n.op == "call_function"], str(error))
        return None
    return Part.of(graph, weights, executable, tensors)


def _outputs(graph: Any) -> list[Any]:
    found = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    return list(found) if isinstance(found, (list, tuple)) else [found]  # pyright: ignore


def _meta(node: Any) -> Any:
    return node.meta.get("val") if hasattr(node, "meta") else node


@dataclass
class Part:
    """A compiled graph, called as the graph is."""

    executable: Executable
    given: list[int]
    """The arguments that the compiled code takes; the others are weights and sizes."""
    outputs: list[Any]
    tensors: list[int]
    single: bool
    symbols: list[tuple[int, Any]]
    """Arguments that are sizes, and their symbols."""
    on_gpu: bool
    """Whether all arguments are there that the compiled code takes."""

    @staticmethod
    def of(
        graph: Any, weights: Mapping[str, Any], executable: Executable, tensors: list[int]
    ) -> Part:
        nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
        given = [k for k, n in enumerate(nodes)
                 if n.name not in weights and hasattr(_meta(n), "dtype")]
        symbols = [(k, _meta(n).node.expr) for k, n in enumerate(nodes)
                   if type(_meta(n)).__name__ == "SymInt"]
        result = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        on_gpu = bool(given) and all(_meta(nodes[k]).is_cuda for k in given)
        return Part(executable, given, [_meta(v) for v in _outputs(graph)], tensors,
                    not isinstance(result, (list, tuple)), symbols, on_gpu)

    def write_to(self, arguments: Sequence[int]) -> None:
        """Let the last results be computed right in arguments, as far as the target can."""
        places = {k: n for n, k in enumerate(self.given)}
        first = len(self.outputs) - len(arguments)
        self.executable.loaded.donate({
            n: places[arguments[k - first]] for n, k in enumerate(self.tensors)
            if k >= first and arguments[k - first] in places})

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The shortest way to run on arguments where they are. PyTorch has checked them."""
        loaded = self.executable.loaded
        if loaded.takes_gpu_tensors and self.on_gpu:
            return loaded.run
        return lambda values: self.executable(*values)

    @cached_property
    def is_plain(self) -> bool:
        """Whether results are returned as the compiled code makes them."""
        return self.on_gpu and len(self.tensors) == len(self.outputs) and all(
            is_static(v.shape) and v.is_contiguous() for v in self.outputs)

    def __call__(self, *arguments: Any) -> Any:
        made = self.run([arguments[k] for k in self.given])
        if self.is_plain:
            return made[0] if self.single else made
        results = [self._size(v, arguments) for v in self.outputs]
        for k, value in zip(self.tensors, made, strict=True):
            results[k] = _as_tensor(value, self.outputs[k])
        return results[0] if self.single else tuple(results)

    def _size(self, value: Any, arguments: Sequence[Any]) -> Any:
        """An output that is no tensor: a size, or a constant."""
        if type(value).__name__ != "SymInt":
            return None if hasattr(value, "dtype") else value
        known = {symbol: arguments[k] for k, symbol in self.symbols}
        return int(value.node.expr.subs(known))


def is_static(sizes: Sequence[Any]) -> bool:
    """Whether sizes or strides that Dynamo tells are plain numbers."""
    return all(isinstance(s, int) for s in sizes)


def _as_tensor(value: Any, like: Any) -> Any:
    """A result as a tensor, with the strides that the graph was captured with."""
    torch = torch_module()
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value).to(like.device)
    strides = like.stride()
    if is_static(strides) and tensor.stride() != tuple(strides):
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype,
                                   device=tensor.device).copy_(tensor)
    return tensor
