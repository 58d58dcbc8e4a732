"""Describes a library that the command `compile` wrote: what it was made of, and what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compiler.diagnostics import Problem, StrataError, cut
from compiler.io.signature import Signature
from targets.library_file import NoLibrary, read_facts, read_weights

_SUFFIXES = (".weights", ".so", ".a", ".o", ".wasm", ".dylib", ".dll")
_LONGEST = 160


def is_written_library(model: str) -> bool:
    """Whether the name of a file is that of a library, and of no model."""
    return model.endswith(_SUFFIXES)


def describe_library(path: str, as_json: bool) -> list[str]:
    """Lines for people, or JSON. Raises StrataError for what is no library of Strata's."""
    try:
        if weights := read_weights(path):
            size, digest = weights
            return _json({"bytes": size, "sha256": digest}) if as_json else [
                f"{path}: the constants of a library, {size} bytes, sha256 {digest}"]
        facts = read_facts(path)
        return _json(facts) if as_json else [
            cut(line, _LONGEST) for line in _report(path, facts)]
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from error
    except (NoLibrary, LookupError, TypeError, ValueError, AttributeError) as error:
        raise StrataError(f"cannot describe {path}", [Problem(str(error))]) from error


def _json(facts: Mapping[str, Any]) -> list[str]:
    return json.dumps(facts, indent=2).splitlines()


def _report(path: str, facts: Mapping[str, Any]) -> Iterator[str]:
    signature, constants = Signature.read(facts["signature"]), facts["constants"]
    weights, files = facts["weights"], facts["model_files"]
    yield (f"{path}: the model {facts['model']}, compiled by Strata {facts['strata']}; functions "
           f"start with {facts['name']}_")
    for what, names, types in (("inputs", signature.input_names, signature.input_types),
                               ("outputs", signature.output_names, signature.output_types)):
        yield what
        yield from (f"  {name}  {type_.short}" for name, type_ in zip(names, types, strict=True))
    if signature.symbols():
        yield f"sizes that are open: {', '.join(s.name for s in signature.symbols())}"
    if len(facts.get("variants", ())) > 1:
        yield f"variants, of which the best runs: {', '.join(map(str, facts['variants']))}"
    for sizes in facts.get("sizes", ()):
        fixed = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        yield f"code of its own for {fixed}"
    place = "in the library" if weights is None else (
        f"in the file {weights['file']}, sha256 {weights['sha256']}")
    yield f"constants: {constants['count']}, {constants['bytes']} bytes, {place}"
    yield f"for {facts['system']}, {facts['processor']}; it needs {_joined(facts['needs'])}"
    if counts := facts.get("kernels"):
        yield ", ".join(f"{count} kernels for {arch}" for arch, count in counts.items())
    yield f"made with {_code_compiler(facts)} and {facts['c_compiler']}"
    options = (f"{name} {value}" for name, value in facts["options"].items())
    yield f"options: {', '.join(options)}"
    yield from (f"{name}: sha256 {digest}" for name, digest in files.items())


def _code_compiler(facts: Mapping[str, Any]) -> str:
    """What compiled the kernels."""
    return f"Triton {facts['triton']}" if "triton" in facts else f"LLVM {facts['llvm']}"


def _joined(names: Sequence[str]) -> str:
    return ", ".join(map(str, names)) or "no special instructions"
