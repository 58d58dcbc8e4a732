"""Checks what the graph of a `.pt2` file contains. The file is not trusted.

PyTorch's own reader resolves any name under `torch`, `math` and `operator` as an operator,
evaluates sizes as Python expressions, imports modules that it finds in the descriptions of inputs,
compiles guards, and writes the names of nodes into Python source that it compiles.

So all of this is checked before PyTorch sees it. Operators must be on a list, sizes must be
arithmetic, and names must be plain. Guards and descriptions of inputs are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.library import torch_module

_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+\.\w+"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|associative_scan)"  # of checked graphs
    r"|_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_"
    r"|lshift|rshift|getitem)"
    r"|math\.(trunc|ceil|floor)"
    r"|torch\.sym_(not|int|float|ite|max|min|sqrt)")
_NAME = re.compile(r"[\w.\-/:+ ]*")
_SIZE_TOKEN = re.compile(r"'(\w+)'|([A-Za-z_]\w*)|\d+(\.\d+)?|[()+\-*/%,=<>!~&| ]")
_SIZE_WORDS = frozenset((
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Abs", "positive",
    "nonnegative", "integer", "nonzero", "finite", "real", "precision", "True", "False", "true",
    "false", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Equality", "Unequality",
    "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "FloorDiv", "CleanDiv",
    "CeilDiv", "Mod", "PythonMod", "ModularIndexing", "IntTrueDiv", "FloatTrueDiv", "CeilToInt",
    "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "ToFloat", "PowByNatural",
    "FloatPow", "int_oo", "evaluate"))
_MAX_SIZE_TEXT = 4096
_POWER = re.compile(r"Pow\(Symbol\('\w+'[^()]*\), Integer\(-?\d{1,2}\)\)")
"""The only powers that are accepted, since others could take forever to evaluate."""

OBJECTS = ("as_custom_obj", "custom_obj", "as_opaque", "token")
"""Kinds of values that are neither tensors nor numbers."""
FREE = ("metadata", "as_string", "as_strings", "torch_version")
"""Entries that PyTorch only stores, and never interprets."""


def check_program(program: Any, file: str) -> dict[str, Any]:
    """The parsed graph, with guards and descriptions of inputs replaced.

    Raises StrataError with up to 20 problems.
    """
    problems = list(dict.fromkeys(_problems(program, "")))
    if not isinstance(program, dict) or "graph_module" not in program:
        problems.insert(0, "it does not describe a program")
    if problems:
        raise StrataError(f"{file} is not a program that can be read safely", [
            Problem(p, file=file) for p in problems[:20]])
    plain = cast(dict[str, Any], program)
    graph_module = {**plain["graph_module"], "module_call_graph": [_call(plain["graph_module"])]}
    return {**plain, "graph_module": graph_module, "guards_code": []}


def _call(graph_module: Mapping[str, Any]) -> dict[str, Any]:
    """A description of the call: the inputs one by one, and the outputs as one tuple."""
    pytree = torch_module("torch.utils._pytree")
    structure, dumps = pytree.tree_structure, pytree.treespec_dumps
    signature = graph_module["signature"]
    inputs = sum("user_input" in spec for spec in signature["input_specs"])
    outputs = sum("user_output" in spec for spec in signature["output_specs"])
    return {"fqn": "", "signature": {
        "inputs": [], "outputs": [], "forward_arg_names": None,
        "in_spec": dumps(structure(((0,) * inputs, {}))),
        "out_spec": dumps(structure((0,) * outputs))}}


def _problems(value: Any, key: str) -> Iterator[str]:
    """The problems in a parsed value that is stored under a key."""
    if key in OBJECTS and value not in (None, ""):
        yield f"it contains an object that is not a tensor ('{key}')"
    elif key == "module_call_graph" or key == "guards_code" or key in FREE:
        return
    elif isinstance(value, dict):
        entries = cast(dict[str, Any], value)
        if key == "nodes":
            yield from _text_problems(str(entries.get("target")), "as_operator")
        for name, inner in entries.items():
            yield from _text_problems(str(name), "")
            yield from _problems(inner, name)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            yield from _problems(inner, key)
    elif isinstance(value, str):
        yield from _text_problems(value, key)


def _text_problems(text: str, key: str) -> Iterator[str]:
    if key == "as_operator":
        if not _OPERATOR.fullmatch(text):
            yield f"operator {text[:80]!r} is not allowed"
    elif key == "expr_str":
        if not _is_size(text):
            yield f"the size {text[:80]!r} is not arithmetic"
    elif not _NAME.fullmatch(text):
        yield f"the name {text[:80]!r} may only have letters, digits, spaces and . - _ / : +"


def _is_size(text: str) -> bool:
    """Whether a text consists of words of arithmetic, numbers, and symbols such as `s0`."""
    if "Pow" in _POWER.sub("", text):
        return False
    position = 0
    while position < len(text):
        token = _SIZE_TOKEN.match(text, position)
        if token is None or "**" in text or len(text) > _MAX_SIZE_TEXT:
            return False
        word = token[1] or token[2]
        if word and word not in _SIZE_WORDS and not re.fullmatch(r"[a-z]{1,4}\d+", word):
            return False
        position = token.end()
    return True
