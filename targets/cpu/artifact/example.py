"""`main.c`: a program that runs a model once on numbers that it makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialects.strata.assumptions import Assumption
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.symbol import Symbol
from targets.cpu.artifact.c_text import comment, quoted
from targets.cpu.artifact.ports import Parameter, Parameters, Ports
from targets.expressions import Expressions

EXAMPLE_SIZES = (2, 1, 3, 4, 8, 16, 32, 64, *range(5, 64),
                 *(n * 2**k for k in range(4, 15) for n in (8, 5, 6, 7)))
"""The values of open sizes that the program is not given: of those for which the model was
compiled, the first."""
_STARTS = 8
_OPERATORS = {"floordiv": "/", "mod": "%", "max": ">", "min": "<"}
_ADDED = frozenset(("f32", "f64", "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"))
"""The element types whose numbers C can compute with."""


def example_text(name: str, ports: Ports, weights: str | None) -> str:
    """The program. `weights`: the path of the file of weights, if there is one."""
    given = Parameters.of(ports)
    c = _Plain({s: p.name for s, p in zip(ports.symbols, given.sizes, strict=True)})
    passed = [f"&{text}" if p.shape == other else text for group in given for p in group
              for text, other in ((p.name, p.shape or None), (p.shape, None)) if text]
    options = "&options" if weights is not None else "NULL"
    sizes = example_sizes(ports.symbols, ports.plan.assumptions)
    lines = [
        f"/* Runs {name} once on numbers that it makes up. Its arguments are the open sizes: "
        f"{comment(', '.join(p.name for p in given.sizes)) or 'there are none'}. */",
        "#include <stdio.h>",
        "#include <stdlib.h>", f'#include "{name}.h"', "",
        "int main(int argc, char **argv) {", "    double sum = 0;",
        "    (void)argc, (void)argv, (void)sum;",
        *(f"    int64_t {p.name} = argc > {k} ? atoll(argv[{k}]) : {size};"
          for k, (p, size) in enumerate(zip(given.sizes, sizes, strict=True), 1)),
        *(line for p in (*given.inputs, *given.outputs) for line in _made(p, c)),
        *([f"    strata_options options = {{sizeof options, 0, NULL, {quoted(weights)}, NULL, "
           "NULL, 0, 0};"] if weights is not None else []),
        f"    {name}_state *state = NULL;",
        f"    int status = {name}_create({options}, &state);",
        f"    if (status == STRATA_OK) status = {name}_run({', '.join(['state', *passed])});",
        "    if (status != STRATA_OK) {",
        f"        const char *details = {name}_message(state);",
        *(["        if (status == STRATA_NO_WEIGHTS || status == STRATA_OTHER_WEIGHTS)",
           "            details = options.weights;"] if weights is not None else []),
        f'        fprintf(stderr, "%s%s%s\\n", {name}_error_text(status), '
        'details[0] ? ": " : "", details);',
        "    } else {",
        *(f"    {line}" for p in given.outputs for line in _shown(p)), "    }",
        f"    {name}_destroy(state);",
        *(f"    free({p.name});" for p in (*given.inputs, *given.outputs) if not p.shape),
        "    return status != STRATA_OK;", "}", ""]
    return "\n".join(lines)


def example_sizes(symbols: Sequence[Symbol], assumptions: Sequence[Assumption]) -> list[int]:
    """Values of open sizes that break as few assumptions as can be found, mostly none: all the
    same, or such values changed one at a time; and then each the first that breaks no more."""
    about = [a for a in assumptions if a.symbols <= set(symbols)]

    def broken(sizes: Mapping[Symbol, int]) -> int:
        return sum(not a.holds(sizes) for a in about)

    def changed(sizes: dict[Symbol, int]) -> dict[Symbol, int]:
        for symbol in (*symbols, *reversed(symbols)):
            if broken(sizes):
                sizes = min(({**sizes, symbol: size} for size in (sizes[symbol], *EXAMPLE_SIZES)),
                            key=broken)
        return sizes

    same = sorted((dict.fromkeys(symbols, size) for size in EXAMPLE_SIZES), key=broken)
    found = same[0]
    for start in same[:_STARTS]:
        found = min(found, changed(start), key=broken)
        if not broken(found):
            break
    least = broken(found)
    for symbol in symbols:
        found = next(sizes for sizes in ({**found, symbol: size} for size in EXAMPLE_SIZES)
                     if broken(sizes) <= least)
    return [found[s] for s in symbols]


class _Plain(Expressions[str]):
    """Sizes as plain C: those of an example are small and not negative."""

    def __init__(self, symbols: Mapping[Symbol, str]):
        self.symbols = symbols

    def value(self, expr: Expr) -> str:
        terms = [" * ".join([*[str(factor)] * (factor != 1 or not monomial),
                             *map(self.atom, monomial)]) for monomial, factor in expr.terms]
        return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0] if terms else "0"

    def symbol(self, symbol: Symbol) -> str:
        return self.symbols[symbol]

    def division(self, call: Call, left: str, right: str) -> str:
        return f"({left} {_OPERATORS[call.op]} ({right}))"

    def extremum(self, call: Call, left: str, right: str) -> str:
        return f"({left} {_OPERATORS[call.op]} {right} ? {left} : {right})"


def _made(parameter: Parameter, c: _Plain) -> list[str]:
    """The memory of an input or output; inputs are filled with small numbers."""
    name, type_, element = parameter.name, parameter.c_type, parameter.type
    if element is None:
        return []
    if parameter.shape:
        return [f"    const {type_} *{name} = NULL;",
                f"    int64_t {parameter.shape}[{max(1, element.rank)}];"]
    size = " * ".join(c.value(s) for s in element.shape) or "1"
    lines = [f"    int64_t {parameter.counter} = {size};",
             f"    {type_} *{name} = calloc((size_t){parameter.counter} + 1, sizeof *{name});"]
    if parameter.is_output or element.element not in _ADDED:
        return lines
    number = f"({type_})((double)(k % 7) / 7 - 0.4)" if element.is_float else f"({type_})(k % 2)"
    return [*lines, f"    for (int64_t k = 0; {name} != NULL && k < {parameter.counter}; k++)",
            f"        {name}[k] = {number};"]


def _shown(parameter: Parameter) -> list[str]:
    """Print how many elements an output has, and their sum."""
    name, element = parameter.name, parameter.type
    if element is None:
        return []
    count = parameter.counter
    lines = [f"    int64_t {count} = 1;", f"    for (int d = 0; d < {element.rank}; d++) "
             f"{count} *= {parameter.shape}[d];"] if parameter.shape else []
    if element.element not in _ADDED:
        return [*lines, f'    printf("{name}: %lld elements\\n", (long long){count});']
    return [*lines, "    sum = 0;",
            f"    for (int64_t k = 0; k < {count}; k++) sum += (double){name}[k];",
            f'    printf("{name}: %lld elements, sum %.9g\\n", (long long){count}, sum);']
