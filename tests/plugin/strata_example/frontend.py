"""A frontend: files that end in `.steps`, an operator a line.

    input x 4 batch
    h = exp x
    y = mul h x
    output y
"""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from compiler.diagnostics import Problem, StrataError
from compiler.frontend import ImportedModel, ImportOptions
from compiler.frontend.builder import Builder
from dialects.graph import AbsOp, AddOp, ExpOp, MulOp, SubOp, TanhOp
from dialects.graph.base import ShapeError
from dialects.strata.func import FuncOp
from dialects.strata.types import f32, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr

DESCRIPTION = "a .steps file, with an operator on each line"
OPERATORS = {"abs": AbsOp, "add": AddOp, "exp": ExpOp, "mul": MulOp, "sub": SubOp, "tanh": TanhOp}


def accepts(model: str) -> bool:
    return model.endswith(".steps")


def load_model(model: str, options: ImportOptions) -> ImportedModel:
    """Raises StrataError with every line that cannot be read."""
    lines = [line.split() for line in Path(model).read_text(encoding="utf-8").splitlines()]
    types = {name: tensor(f32, [size(text, options) for text in shape])
             for keyword, name, *shape in filter(None, lines) if keyword == "input"}
    function = FuncOp.of("main", list(types), list(types.values()))
    build, problems = Builder(function.body.block, WeightStore()), list[Problem]()
    values = {name: build.value(argument)
              for name, argument in zip(types, function.body.block.args, strict=True)}
    for number, line in enumerate(lines, 1):
        try:
            if line[1:2] == ["="]:
                build.node = line[0]  # the name that messages call these operations by
                values[line[0]] = build(OPERATORS[line[2]], *(values[v] for v in line[3:]))
        except (KeyError, ShapeError) as error:
            problems.append(Problem(f"line {number} cannot be read: {error}", node=line[0]))
    results = [name for line in lines if line[:1] == ["output"] for name in line[1:]]
    problems += [Problem(f"nothing computes the output '{r}'") for r in results if r not in values]
    if problems:
        raise StrataError(f"{model} cannot be imported", problems)
    function.finish(results, [build.ssa(values[name]) for name in results])
    build.finish()
    return ImportedModel(ModuleOp([function]), build.weights, Path(model).stem)


def size(text: str, options: ImportOptions) -> Expr:
    """An integer, or a name, which `--dim` may give a value."""
    return Expr.of(int(text)) if text.isdigit() else (
        Expr.of(options.dims[text]) if text in options.dims else Expr.size(text))
