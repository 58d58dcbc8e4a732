"""`torch.compile(model, backend="strata")`: PyTorch captures, Strata compiles.

TorchDynamo captures graphs. AOTAutograd lowers them to Core ATen, where the only mutations write
new contents to arguments at the end of a graph. The PyTorch frontend imports everything before
these writes. Operators that it cannot import run eagerly between compiled parts, and are named in
a warning. Sizes that Dynamo leaves dynamic become named sizes of the compiled code.

If gradients are recorded, AOTAutograd derives a forward and a backward graph, which are compiled
alike (`training.py`).

In inference, compiled code holds parameters and buffers, packed as it needs them. If floats among
them change, or a call has others, they are packed anew; for other integers the graph is compiled
again (`weights.py`). Results share memory as they do eagerly (`views.py`).

`options` of `torch.compile` are those of `compiler.compile`, or PyTorch's own. The target is that
of the inputs' device unless one is given.

The module can be imported without torch.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.diagnostics import StrataError, some_of
from compiler.faults import CompilerFault
from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module
from compiler.programs.collection import rare_collections
from compiler.torch import shared
from compiler.torch.effects import Checks, kept_checks, take_checks, with_tokens
from compiler.torch.graphs import compile_graph, note_of
from compiler.torch.messages.breaks import show_break
from compiler.torch.messages.eager import name_eager
from compiler.torch.messages.logs import count_recompilation, with_dumps
from compiler.torch.parts import Part, Run, Viewed, with_weights
from compiler.torch.reordered import Reordered
from compiler.torch.saved import save_channels_last, take_strides
from compiler.torch.training import (
    aliases_of_arguments,
    compiled_step,
    donated_arguments,
    first_result,
    has_transforms,
    is_recorded,
    keep_saved,
    partition,
    with_own,
)
from compiler.torch.views import split_views, with_arguments
from compiler.torch.vocabulary.options import MODES
from compiler.torch.vocabulary.translation import check_values, target_of, translated
from compiler.torch.weights import Weights, is_of_kind, is_weight
from compiler.torch.writes import (
    RunsEagerly,
    check_captured,
    check_writes,
    share_memory,
    take_writes,
    without_dropout,
)

log = logging.getLogger("strata")

OWN_PACKAGES = ("compiler", "dialects", "passes", "targets")
INFERENCE = "inference"
"""The stage of graphs without gradients."""


def strata(
    graph_module: Any, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Run:
    """The backend. `mode` and `options`: ours, or those of PyTorch's compiler (`vocabulary`).

    Raises StrataError for others.
    """
    from compiler.modes import check_mode

    chosen = translated(mode, options)
    if "mode" in chosen:
        check_mode(chosen["mode"], MODES)
    check_values(chosen, target_of(example_inputs))
    show_break(graph_module)
    return compiled_by(Program, graph_module, example_inputs, with_dumps(chosen))


def compiled_by(
    kind: type[Program], graph_module: Any, example_inputs: Sequence[Any],
    chosen: Mapping[str, Any],
) -> Run:
    """The same, with programs of a kind."""
    from compiler.frontend.torch.core.decompose import decompositions
    from compiler.frontend.torch.core.flex import expand_flex_attention
    from compiler.frontend.torch.core.gradients import step_decompositions
    from compiler.frontend.torch.core.open_numbers import open_number_decompositions

    known = _operator_names(chosen)
    captured = without_dropout(graph_module)
    examples = [getattr(n, "meta", {}).get("example_value") for n in output_nodes(captured)]
    replays = not share_memory(example_inputs)

    def infer(graph: Any, inputs: Sequence[Any]) -> Run:
        expand_flex_attention(graph)
        checks = take_checks(graph)
        written, aliases = take_writes(graph), aliases_of_arguments()
        first = len(output_nodes(graph)) - sum(map(len, (examples, checks.each, written)))
        check_writes(graph, written, aliases, examples, replays, first)
        return with_tokens(compiled_step(graph, lambda inner: _boxed_program(
            _program(kind, inner, chosen, written, aliases, checks=checks))), checks)

    def forward(graph: Any, inputs: Sequence[Any]) -> Run:
        expand_flex_attention(graph)
        checks = take_checks(graph)
        written, aliases = take_writes(graph), aliases_of_arguments()
        check_writes(graph, written, aliases, examples, replays, first_result())
        saved = first_result() + len(examples)
        keep_saved(graph, written, saved)
        if not checks.each:  # whose results AOTAutograd does not count
            save_channels_last(graph, saved, len(output_nodes(graph)) - len(written))
        return with_tokens(compiled_step(graph, lambda inner: _boxed_program(
            _program(kind, inner, chosen, written, aliases, "forward", checks=checks))), checks)

    def backward(graph: Any, inputs: Sequence[Any]) -> Run:
        expand_flex_attention(graph)
        donated = donated_arguments(graph)
        take_strides(graph, inputs)
        written = take_writes(graph)
        programs = list[Program]()

        def compile_inner(inner: Any) -> Run:
            programs.append(_program(kind, inner, chosen, written, {}, "backward", donated))
            return _boxed_program(programs[-1])

        return with_own(compiled_step(graph, compile_inner), donated,
                        lambda: [k for p in programs for k in p.overwritten])

    table = decompositions(known)
    compiled = torch_module("torch._dynamo.backends.common").aot_autograd(
        fw_compiler=forward, bw_compiler=backward, inference_compiler=infer,
        partition_fn=partition,
        decompositions={
            **table, **open_number_decompositions(table),
            **(step_decompositions() if is_recorded(captured, example_inputs) else {})},
        keep_inference_input_mutations=True)
    with torch_module("torch._functorch.config").patch(_tracing(replays)):
        return _or_eagerly(compiled, captured, example_inputs, known)


def _tracing(replays: bool) -> dict[str, Any]:
    """How AOTAutograd traces. Checkpoints keep the state of a generator as a tensor, also on a GPU,
    where newer versions would otherwise pass generators to graphs."""
    wanted = {"view_replay_for_aliased_outputs": replays, "graphsafe_rng_functionalization": False}
    known = torch_module("torch._functorch.config")
    return {name: value for name, value in wanted.items() if hasattr(known, name)}


def _program(
    kind: type[Program], graph: Any, options: Mapping[str, Any], written: Sequence[int],
    aliases: Mapping[int, int], stage: str = INFERENCE, donated: Sequence[int] = (),
    checks: Checks | None = None,
) -> Program:
    """A graph, from whose results views are taken apart."""
    views = split_views(graph, written, aliases)
    inner, outer = (graph, None) if views is None else (views.inner, views.outer)
    return kind(inner, options, written, outer=outer, stage=stage, donated=donated,
                checks=checks or Checks())


def _operator_names(options: Mapping[str, Any]) -> list[str]:
    """The names of the operators with importers, which need not be loaded for that."""
    note = note_of(options, ["torch operators"])
    known = note.find()
    if known is None:
        from compiler.frontend.torch import operators

        note.keep(known := operators())
    return list(map(str, known))


def _or_eagerly(
    compiled: Any, captured: Any, example_inputs: Sequence[Any], known: Collection[str]
) -> Run:
    """The compiled graph; the graph as it was captured if AOTAutograd does not trace it."""
    try:
        check_captured(captured)
        with rare_collections(is_recorded(captured, example_inputs)), kept_checks(), _composites(
                captured, example_inputs, known):
            made = compiled(captured, example_inputs)
        return with_arguments(made, captured) if share_memory(example_inputs) else made
    except (StrataError, CompilerFault, torch_module("torch._dynamo.exc").TorchDynamoException):
        raise
    except RunsEagerly as why:
        name_eager(["the whole graph"], str(why))
    except Exception as error:
        if _arose_here(error):
            raise
        name_eager(["the whole graph"], f"AOTAutograd cannot trace it: {error}")
    return captured.forward


def _composites(
    captured: Any, example_inputs: Sequence[Any], known: Collection[str]
) -> AbstractContextManager[None]:
    """Composite operators are kept whole, unless gradients are recorded or computed inside."""
    from compiler.frontend.torch.core.decompose import composites_whole
    from compiler.torch.attention import attention_in_parts, attention_whole

    if has_transforms(captured):
        return attention_in_parts()
    recorded = is_recorded(captured, example_inputs)
    return attention_whole() if recorded else composites_whole(known)


def _arose_here(error: Exception) -> bool:
    """Whether an exception was raised by the compiler's own code, not by PyTorch's."""
    root, last = Path(__file__).parents[2], traceback.extract_tb(error.__traceback__)[-1].filename
    return any(root / name in Path(last).parents for name in OWN_PACKAGES)


def _boxed_program(program: Program) -> Run:
    """The same for a program, with a shorter way where its code needs only addresses."""
    def call(arguments: list[Any]) -> Any:
        direct = program.direct
        if direct is not None:
            made = direct(arguments)
            if made is not None:
                return made
        return program(*arguments)

    boxed: Any = call
    boxed._boxed_call = True
    return call


def without_modes() -> AbstractContextManager[Any]:
    """Tensors that are looked at while code is prepared are no operations of the user's: modes,
    such as AOTAutograd's at a graph's first call, would handle each of them in Python."""
    return torch_module("torch.utils._python_dispatch")._disable_current_modes()


# ---------------------------------------------------------------------- one graph
MOST_SETS = 64
"""The number of sets of weights whose packed copies a graph keeps."""


@dataclass
class Program:
    """A Core ATen graph, compiled at its first call, for any number of sets of weights.

    `written`: the arguments to which its last results are written. `outer`: takes views of what it
    returns, as in `views.py`.

    `made`: the last weights and the code that holds them, in a single reference: while one thread
    prepares others, no thread mistakes the old code for the new. `sets`: all that are kept, by the
    identity of the weights.
    """

    graph: Any
    options: Mapping[str, Any]
    written: Sequence[int] = ()
    made: tuple[Weights, Run] | None = None
    outer: Run | None = None
    direct: Callable[[Sequence[Any]], list[Any] | None] | None = None
    """The whole call, where it is nothing but `Part.direct`."""
    stage: str = INFERENCE
    """In which code holds parameters and buffers; "forward" and "backward" take them as arguments.
    """
    donated: Sequence[int] = ()
    """The arguments that nobody needs after a call."""
    checks: Checks = field(default_factory=Checks)
    sets: OrderedDict[tuple[int, ...], tuple[Weights, Run]] = field(
        default_factory=OrderedDict[tuple[int, ...], tuple[Weights, Run]])

    def __call__(self, *inputs: Any) -> Any:
        made = self.made
        if made is None or not made[0].are_in(inputs):
            self.made = made = self._made_for(inputs)
        results = made[1](*inputs)
        if self.outer is not None:
            results = self.outer(*inputs, *results)
        if self.checks.each:
            self.checks.check(results[:len(results) - len(self.written)])
        return self._write(inputs, results) if self.written else results

    def _made_for(self, inputs: Sequence[Any]) -> tuple[Weights, Run]:
        """The code with these weights: kept from before, given these weights, or compiled."""
        numbers = [k for k, v in enumerate(inputs) if self.stage == INFERENCE
                   and k not in self.written and is_weight(v)]
        key = tuple(id(inputs[k]) for k in numbers)
        known = self.sets.pop(key, None)
        if known is None or not known[0].are_in(inputs):
            with without_modes(), rare_collections(self.stage != INFERENCE):
                known = self._prepared(inputs, numbers, known or self.made)
        self.sets[key] = known
        while len(self.sets) > MOST_SETS:
            self.sets.popitem(last=False)
        return known

    def _drop_dead(self) -> None:
        """Drop the sets of weights that no call can have again."""
        kept = list(self.sets.items())  # other threads may change it
        sets = [weights for _, (weights, _) in kept]
        holders = Counter(id(tensor) for weights in sets for tensor in weights.tensors)
        for key in [key for key, (weights, _) in kept if weights.is_dead(holders)]:
            self.sets.pop(key, None)

    def _prepared(
        self, inputs: Sequence[Any], numbers: Sequence[int], before: tuple[Weights, Run] | None
    ) -> tuple[Weights, Run]:
        weights = Weights.of(inputs, numbers)
        self._drop_dead()
        nodes = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        other = [nodes[k].name for k in numbers if not is_of_kind(inputs[k], nodes[k])]
        if other:
            log.warning("strata: a graph runs eagerly: %s have other shapes or types than they had "
                        "when it was captured", some_of(other))
            return weights, self.graph.forward
        names = [n.name for n in nodes]
        fixed = {names[k]: inputs[k].detach() for k in numbers}  # only sets hold the weights
        run = None
        if before is not None and before[0].numbers == numbers:
            changed = [names[k] for k in before[0].changed(inputs)]
            run = before[1]
            if run != self.graph.forward:  # which takes any weights
                run = with_weights(run, fixed, changed)
            if run is None:
                count_recompilation(f"other values of {some_of(changed)}")
        if run is None:
            run = self.compiled(fixed, {"target": target_of(inputs), **self.options})
        if isinstance(run, (Part, Reordered)):
            run.write_to(() if self.checks.each else self.written)
        weights.watch(self.forget)
        if isinstance(run, Part) and not (
                numbers or self.written or self.outer or run.single or self.checks.each):
            self.direct = run.direct
        return weights, run

    def compiled(self, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Run:
        """The code of an equal graph with these weights, or new code."""
        key = shared.key_of(self.graph, weights, options, self.donated, self.written)
        found = shared.find(key, weights) if key else None
        if found is not None:
            return found
        made = compile_graph(self.graph, weights, options)
        if self.donated and isinstance(made, (Part, Reordered, Viewed)):
            made = made.with_donated(self.donated)
        if key:
            shared.keep(key, made)
        return made

    @property
    def overwritten(self) -> Sequence[int]:
        """The arguments in whose memory results may lie."""
        run = None if self.made is None else self.made[1]
        if isinstance(run, (Part, Reordered, Viewed)):
            return run.overwritten
        return self.donated if self.made is None else ()

    def forget(self) -> None:
        """Look at all weights anew at the next call, since an optimizer has changed some of them.
        """
        for weights, _ in list(self.sets.values()):
            weights.forget()

    def _write(self, inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        """Write new contents to arguments, all of a type at once, and return the remaining
        results.

        Arguments that the compiled code has written in place are skipped.
        """
        count = len(results) - len(self.written)
        pairs: defaultdict[Any, list[tuple[Any, Any]]] = defaultdict(list)
        done: list[Any] = []
        for number, value in zip(self.written, results[count:], strict=True):
            given = inputs[number]
            if value is given or _is_same(value, given):
                done.append(given)
            elif given.is_conj() or given.is_neg():  # _foreach_copy_ refuses them
                given.copy_(value)
            else:
                pairs[given.dtype].append((given, value))
        for found in pairs.values():
            torch_module()._foreach_copy_(*map(list, zip(*found, strict=True)))
        torch_module("torch.autograd.graph").increment_version(
            [v for v in done if not v.is_inference()])
        return results[:count]


def _is_same(value: Any, given: Any) -> bool:
    """Whether a result that has been computed lies where it is to be written."""
    return value.device.type == "cpu" and value.data_ptr() == given.data_ptr() and (
        value.numel() > 0 and value.stride() == given.stride())
