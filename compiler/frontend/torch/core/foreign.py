"""Users' kernels in Triton: `triton_op`, `wrap_triton`, or a `@triton.jit` function that is called.

PyTorch records a launch as an operator that refers to the kernel, its constants and its grids. It
becomes one operation, whose source is a module of its own: the function, those that it calls, and
the constants that they read.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.tensors import element_of
from compiler.frontend.values import Value
from dialects.graph.foreign import ForeignKernelOp
from dialects.symbolic.expr import Expr

UNDEFINED = ("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
             "aten.empty_permuted.default", "aten.empty_strided.default",
             "aten.new_empty_strided.default")
"""Operators whose results hold anything."""
KNOWN_MODULES = ("triton", "math")


# ---------------------------------------------------------------------- the operator
def _side_table() -> Any:
    return torch_module("torch._higher_order_ops.triton_kernel_wrap").kernel_side_table


def chosen(node: Any) -> tuple[Any, Mapping[str, Any], int, int, int]:
    """The function of a launch, its constants, warps, stages, and the number of its grid.

    Of a kernel with configurations, the one that tuning has found before is taken, else the first.
    Raises Fault for a kernel with heuristics, and for tensor descriptors.
    """
    kernel = _side_table().get_kernel(node.kwargs["kernel_idx"])
    constants = dict(_side_table().get_constant_args(node.kwargs["constant_args_idx"]))
    number = 0
    if type(kernel).__name__ == "Autotuner":
        number = _configuration(kernel)
        config = kernel.configs[number]
        constants |= {**config.kwargs, "num_warps": config.num_warps,
                      "num_stages": config.num_stages}
        kernel = kernel.fn
    if type(kernel).__name__ not in ("JITFunction", "InterpretedFunction"):
        raise Fault(f"it launches a kernel of {type(kernel).__name__}")
    if node.kwargs.get("tma_descriptor_metadata"):
        raise Fault("it passes tensor descriptors to a kernel")
    warps, stages = constants.pop("num_warps", 4), constants.pop("num_stages", 3)
    if left := sorted({*constants} - {*kernel.arg_names}):
        raise Fault(f"it launches a kernel with the options {', '.join(left)}")
    return kernel, constants, warps, stages, number


def _configuration(kernel: Any) -> int:
    """The number of the configuration that tuning has found before; else the first one."""
    found = [*getattr(kernel, "cache", {}).values()]
    return kernel.configs.index(found[-1]) if found and found[-1] in kernel.configs else 0


def foreign(build: Builder, node: Any, value_of: Any) -> dict[str, Value]:
    """The tensors that a launch changes, by the names of its parameters."""
    kernel, constants, warps, stages, number = chosen(node)
    given: Mapping[str, Any] = node.kwargs["kwargs"]
    constants = {**_constants_among(kernel, given), **constants}
    changed = [name for name in kernel.arg_names if name in node.kwargs["tensors_to_clone"]]
    _check_tensors([v for v in given.values() if _is_tensor(v)])
    grids = node.kwargs["grid"]
    grid = [_size(value_of(size)) for size in grids[number if number < len(grids) else 0]]
    reads = [name for name, v in given.items() if _is_tensor(v) and name not in changed]
    kept = [name for name in changed if not _is_undefined(given[name])]
    call = _Call(len(reads), changed, reads)
    words = [call.word(name, given, constants, value_of) for name in kernel.arg_names
             if name in given or name in constants]
    fresh = [given[name].meta["val"] for name in changed if name not in kept]
    shapes = [e for v in fresh for e in (v.dim(), *(_size(value_of(s)) for s in v.shape))]
    made = build.results(
        ForeignKernelOp, *(value_of(given[name]) for name in (*reads, *kept)),
        kernel=kernel.__name__, source=source_of(kernel), call=", ".join(words),
        sizes=call.sizes, reads=len(reads),
        kept=[len(reads) + kept.index(n) if n in kept else -1 for n in changed],
        elements=" ".join(str(element_of(v.dtype)) for v in fresh), shapes=shapes, grid=grid,
        warps=warps, stages=stages)
    return dict(zip(changed, made, strict=True))


def _constants_among(kernel: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of parameters that are constants of a kernel."""
    parameters = inspect.signature(kernel.fn).parameters
    return {name: value for name, value in given.items()
            if "constexpr" in str(parameters[name].annotation)}


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "meta") and hasattr(value.meta.get("val"), "stride")


def _is_undefined(node: Any) -> bool:
    return str(node.target) in UNDEFINED


def _check_tensors(nodes: Sequence[Any]) -> None:
    """Raise Fault for tensors with gaps or another order in memory, and outside of a GPU."""
    for node in nodes:
        value = node.meta["val"]
        if value.device.type != "cuda":
            raise Fault(f"it launches a kernel of Triton on the device {value.device}")
        if not value.is_contiguous():
            raise Fault(f"its kernel reads '{node.name}' with strides {tuple(value.stride())}")


def _size(value: Any) -> Expr:
    if isinstance(value, Expr | int):
        return Expr.of(value)
    raise Fault(f"its grid depends on {value}, which is no size")


class _Call:
    """The arguments of a call as text: `{k}` for buffers, then for sizes."""

    def __init__(self, reads: int, changed: Sequence[str], names: Sequence[str]) -> None:
        self.buffers = {name: k for k, name in enumerate((*names, *changed))}
        self.sizes: list[Expr] = []

    def word(
        self, name: str, given: Mapping[str, Any], constants: Mapping[str, Any], value_of: Any
    ) -> str:
        if name in constants:
            return f"{name}={literal(constants[name])}"
        if name in self.buffers:
            return f"{name}={{{self.buffers[name]}}}"
        value = value_of(given[name])
        if isinstance(value, bool):
            return f"{name}=tl.full((), {value}, tl.int1)"
        if isinstance(value, float):
            return f"{name}=tl.full((), {literal(value)}, tl.float32)"
        if isinstance(value, Expr | int):
            self.sizes.append(Expr.of(value))
            return f"{name}={{{len(self.buffers) + len(self.sizes) - 1}}}"
        if value is None:
            return f"{name}=None"
        raise Fault(f"it passes {type(value).__name__} as {name} to a kernel")


def literal(value: Any) -> str:
    """A constant as text. Raises Fault for one without such."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if (isinstance(value, float) and value != value) or value in (float("inf"), -float("inf")):
        return f'float("{value}")'
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value).replace("{", "{{").replace("}", "}}")
    if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton"):
        return f"tl.{value.name.replace('fp', 'float') if value.name != 'bf16' else 'bfloat16'}"
    raise Fault(f"it passes the constant {value!r} to a kernel")


# ---------------------------------------------------------------------- sources
def source_of(kernel: Any) -> str:
    """A module's text that defines a kernel. Raises Fault for what cannot be written there."""
    pieces: dict[str, str] = {}
    _define(kernel, kernel.__name__, pieces)
    return "\n".join(pieces.values())


def _define(kernel: Any, name: str, pieces: dict[str, str]) -> None:
    """A function, after what it refers to. Raises Fault."""
    if name in pieces:
        return
    pieces[name] = ""  # it may call itself
    text = textwrap.dedent(inspect.getsource(kernel.fn))
    tree = ast.parse(text)
    for word, value in _references(kernel.fn, tree):
        if hasattr(value, "fn") and hasattr(value, "arg_names"):
            _define(value, value.__name__, pieces)
            if value.__name__ != word:
                pieces[word] = f"{word} = {value.__name__}\n"
        else:
            pieces.setdefault(word, f"{_definition(word, value)}\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    del pieces[name]
    pieces[name] = f"@triton.jit\n{ast.unparse(function)}\n"


def _references(function: FunctionType, tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The names that a function takes from outside, and what they are."""
    outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    local = {*function.__code__.co_varnames, function.__name__}
    for word in sorted(words - local):
        if word in outside:
            yield word, outside[word]


def _definition(word: str, value: Any) -> str:
    """A line that defines a name. Raises Fault."""
    if isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] not in KNOWN_MODULES:
            raise Fault(f"its kernel reads the module {value.__name__}",
                        "let the kernel call the module's functions by their own names")
        return f"import {value.__name__} as {word}"
    if type(value).__name__ == "constexpr":
        return f"{word} = tl.constexpr({literal(value)})"
    if isinstance(value, (bool, int, float, str)):
        return f"{word} = tl.constexpr({literal(value)})"
    home = getattr(value, "__module__", "") or ""
    if type(value).__name__ == "dtype":
        return f"{word} = {literal(value)}"
    if home.partition(".")[0] in KNOWN_MODULES and hasattr(value, "__qualname__"):
        return f"from {home} import {value.__qualname__} as {word}"
    raise Fault(f"its kernel reads {word}, {type(value).__name__}, which is no constant")


def kernel_text(node: Any) -> str:
    """What a launch depends on besides its node: the source of the kernel, and its constants."""
    kernel, constants, warps, stages, number = chosen(node)
    return f"{source_of(kernel)} {sorted(constants.items())} {warps} {stages} {number}"
