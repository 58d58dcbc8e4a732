"""Decomposes programs to Core ATen, except for the operators that have an importer.

PyTorch has a table of decompositions into simpler operators. Operators with an importer in `ops/`
are removed from the table, so that layer_norm, scaled_dot_product_attention and others are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from inspect import signature
from operator import getitem
from typing import Any, NamedTuple

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.core.backward import backward_decompositions
from compiler.frontend.torch.core.encoder_layers import encoder_decompositions
from compiler.frontend.torch.core.foreach import foreach_decompositions
from compiler.frontend.torch.core.gradients import gradient_decompositions
from compiler.frontend.torch.core.in_place import without_mutation
from compiler.frontend.torch.core.orders import order_decompositions
from compiler.frontend.torch.core.places import place_decompositions
from compiler.frontend.torch.core.readable_kernels import readable_kernels
from compiler.frontend.torch.core.sampling import sampling_decompositions
from compiler.frontend.torch.core.strided import strided_decompositions
from compiler.frontend.torch.drawing.decompositions import drawing_decompositions
from compiler.frontend.torch.library import quiet, torch_module
from compiler.frontend.torch.matrices.checks import without_tokens
from compiler.frontend.torch.matrices.decompositions import linear_algebra_decompositions

NO_EFFECT = ("aten._assert_scalar.default", "aten._assert_async.msg",
             "aten._assert_tensor_metadata.default", "aten.sym_constrain_range_for_size.default",
             "aten.sym_constrain_range.default", "prims._sink_tokens.default")
"""Operators without a result, which only check assumptions of the program, or order effects."""
ALSO_DECOMPOSED = ("aten.grid_sampler_2d.default",)
"""Operators of Core ATen that are decomposed nevertheless."""
MADE_COMPLEX = ("aten.complex.default", "aten.polar.default")
"""Operators that stay whole, since PyTorch's decompositions write into parts of a new tensor."""
TRANSFORMS = ("aten._fft_c2c.default", "aten._fft_r2c.default", "aten._fft_c2r.default")
"""Operators that stay whole, since PyTorch's decompositions fix open lengths."""
MAY_RETURN_ARGUMENT = ("aten.type_as.default", "aten.diff.default")
"""Composite operators whose result may be their argument, which their schemas do not say."""


def decompose(program: Any, known: Mapping[str, Any]) -> Any:
    """The program in inference form: decomposed, and without mutations. `known`: the importers.

    PyTorch traces the program for that, which takes most of the time of an import. A program that
    already has this form is returned unchanged.

    Raises StrataError if PyTorch fails, for instance for an invalid program.
    """
    torch = torch_module()
    if is_plain(program, known):
        return program
    table = {**_tables(_operator_count()).export, **_more()}
    for op in kept_whole(list(table), known):
        del table[op]
    try:
        with quiet(), readable_kernels():
            found = program.run_decompositions(table, decompose_custom_triton_ops=True)
            return without_tokens(found)
    except Exception as error:
        raise StrataError(f"PyTorch {torch.__version__} cannot decompose the program", [Problem(
            f"{type(error).__name__}: {str(error).strip()}")]) from error


def is_plain(program: Any, known: Collection[str]) -> bool:
    """Whether every operator has an importer, and none writes into memory that others read."""
    if any(spec.kind.name != "USER_OUTPUT" for spec in program.graph_signature.output_specs):
        return False
    return all(_is_plain(node, known) for node in program.graph.nodes)


def _is_plain(node: Any, known: Collection[str]) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if node.target is getitem:
        return bool(node.users)  # importers return only the results that are used
    if str(node.target) in NO_EFFECT:
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return schema is not None and str(node.target) in known
    return without_mutation(node) in known


@contextmanager
def composites_whole(known: Collection[str]) -> Generator[None]:
    """While AOTAutograd traces inside, composite operators among `known` stay whole.

    Otherwise it takes them apart before any table is asked: linear layers, convolutions, and
    attention, which becomes products in f32 where PyTorch has no kernel for the mask. Only for
    graphs without gradients.

    Tensor subclasses, such as DTensor, know only the parts.
    """
    export = torch_module("torch.export.exported_program")
    kept = {op: partial(_whole_if_plain, op) for op in _composites(tuple(known))}
    dispatcher = torch_module("torch._dispatch.python").enable_python_dispatcher
    with export._override_composite_implicit_decomp(kept), dispatcher():
        yield


def _whole_if_plain(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What replaces the parts of a composite operator: nothing, so that it stays whole, unless a
    tensor subclass is among the arguments."""
    torch = torch_module()
    is_subclass = torch_module("torch.utils._python_dispatch").is_traceable_wrapper_subclass
    leaves = torch_module("torch.utils._pytree").tree_leaves((args, kwargs))
    if not any(isinstance(v, torch.Tensor) and is_subclass(v) for v in leaves):
        return NotImplemented
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@cache
def _composites(known: tuple[str, ...]) -> tuple[Any, ...]:
    """The functional composite operators among `known`, those that have an importer."""
    found = torch_module("torch._export.utils")._collect_all_valid_cia_ops()
    return tuple(op for op in kept_whole(list(found), frozenset(known))
                 if str(op) not in MAY_RETURN_ARGUMENT)


def decompositions(known: Collection[str] | None = None) -> dict[Any, Any]:
    """The table of decompositions for `aot_autograd`, which decomposes composite ops itself.

    `known`: the names of the operators with importers, if the caller has them; to list them loads
    all importers.
    """
    table = {**_tables(_operator_count()).core, **_more()}
    kept = set(kept_whole(list(table), operator_names() if known is None else known))
    return {op: table[op] for op in list(table) if op not in kept}


class _Tables(NamedTuple):
    """PyTorch's tables of decompositions, for programs and for AOTAutograd."""

    export: Mapping[Any, Any]
    core: Mapping[Any, Any]


@lru_cache(maxsize=1)
def _tables(count: int) -> _Tables:
    """The tables while PyTorch knows so many operators. It goes through all of them to make one."""
    return _Tables(dict(torch_module().export.default_decompositions().items()),
                   torch_module("torch._decomp").core_aten_decompositions())


def _operator_count() -> int:
    """How many operators are registered, those of the user's libraries among them."""
    return len(torch_module()._C._dispatch_get_all_op_names())


def operator_names() -> list[str]:
    """The names of all operators with importers, sorted."""
    from compiler.frontend.torch.ops import importers

    return sorted(importers())


def _more() -> dict[Any, Any]:
    """Decompositions that PyTorch does not use by default, or lacks."""
    known = torch_module("torch._decomp").decomposition_table
    found = {op: known[op] for op in list(known)
             if _also_decomposed(op) and _fits(op, known[op])}
    aten = torch_module().ops.aten
    copies = dict.fromkeys((aten.channel_shuffle.default, aten.native_channel_shuffle.default),
                           _channel_shuffle)
    return {**found, **encoder_decompositions(), **gradient_decompositions(),
            **backward_decompositions(), **foreach_decompositions(), **order_decompositions(),
            **place_decompositions(), **drawing_decompositions(), **strided_decompositions(),
            **linear_algebra_decompositions(), **sampling_decompositions(), **copies}


def _also_decomposed(op: Any) -> bool:
    """Whether PyTorch's own decomposition of an operator is used: those of operators outside Core
    ATen give operators that have importers. Operators that write or draw stay what they are;
    composite transforms become `TRANSFORMS`, since PyTorch's references fix open lengths."""
    tag, tags = torch_module().Tag, getattr(op, "tags", ())
    if str(op) in ALSO_DECOMPOSED:
        return True
    if str(op).startswith("aten.fft_"):
        return False
    writes = getattr(op, "_schema", None) and op._schema.is_mutable
    return not writes and tag.core not in tags and tag.nondeterministic_seeded not in tags


@cache
def _fits(op: Any, function: Callable[..., Any]) -> bool:
    """Whether a decomposition takes an operator's arguments by position. Some of PyTorch's
    references have parameters of Python's function instead: `nll_loss` takes its reduction for
    `size_average`, and `var` whether it is unbiased for a dim."""
    if not hasattr(op, "_schema"):
        return True
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # it is not written in Python
        return True
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return True
    names = [p.name for p in parameters if p.kind != p.KEYWORD_ONLY]
    given = [a.name for a in op._schema.arguments if not a.kwarg_only]
    return len(given) <= len(names) and all(
        name not in names or names[k] == name for k, name in enumerate(given))


def _channel_shuffle(x: Any, groups: int) -> Any:
    """Channels c of [n, c, ...] in another order. PyTorch's own decomposition returns its argument
    for one group; the operator copies."""
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return parts.transpose(1, 2).reshape(x.shape).clone()


def kept_whole(ops: list[Any], known: Collection[str]) -> list[Any]:
    """Those of the operators that have an importer."""
    return [op for op in ops if str(op) in known or str(op) in (*MADE_COMPLEX, *TRANSFORMS)]
