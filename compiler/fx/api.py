"""`compiler.to_fx`: a model after graph passes, as a GraphModule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import StrataError
from compiler.executable import Executable
from compiler.fx.writer import graph_module
from compiler.options import CompileOptions

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel


def to_fx(model: object, *, passes: str = "default", simplify: bool = True, **given: Any) -> Any:
    """A model as a `torch.fx.GraphModule` of ATen operators, which returns a tuple.

    `model`: as for `compiler.compile`, or an Executable, whose options are used. `passes`: those
    that run at graph level, as on the command line; without `simplify`, none does, and the module
    is the model as it was imported. `given`: `args`, `kwargs` and `dynamic_shapes` for a module,
    and further fields of CompileOptions, such as `dims`. Each node's `meta["strata"]` names the
    model's node.

    Raises StrataError for operations that ATen lacks. Branches and loops are `cond` and
    `while_loop` of functions, which are GraphModules, too.
    """
    from compiler.pipeline.driver import Compiler

    source, options = _source(model, given)
    options = replace(options, without_groups=(*options.without_groups, "share"),
                      passes=passes if simplify else options.passes)
    compilation = Compiler(source, options)
    state = compilation.lower("graph") if simplify else compilation.read()
    if state.level != "graph":
        raise StrataError(f"{state.name} is at {state.level} level, and FX has tensor operators")
    return graph_module(state.module, state.context.weights, state.name)


def _source(model: object, given: dict[str, Any]) -> tuple[str | MemoryModel, CompileOptions]:
    from compiler.api import model_of_argument, options_of
    from compiler.modules import exported

    if isinstance(model, Executable):
        return model.source(), model.options
    parts = {name: given.pop(name, None) for name in ("args", "kwargs", "dynamic_shapes")}
    model = exported(model, **parts)
    return model_of_argument(model), options_of(given)
