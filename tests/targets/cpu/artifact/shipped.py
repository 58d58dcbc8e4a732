"""Compiles models to libraries, and programs in C that use them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.programs.library import form_of, write_library
from tests import processes

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")


def has_sanitizers(names: str = "address,undefined") -> bool:
    """Whether the C compiler here has them, and what they watch starts."""
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/nothing"
        return all(processes.run(
            words, input="int main(void) { return 0; }", text=True, capture_output=True,
            limit=60).returncode == 0
            for words in (["cc", f"-fsanitize={names}", "-x", "c", "-o", made, "-"], [made]))


needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "ld", "objcopy", "ar"))), reason="there is no C compiler")
needs_sanitizers = pytest.mark.skipif(
    not (shutil.which("cc") and has_sanitizers()), reason="the C compiler has no sanitizers")


def ship(model: Any, path: Path, name: str = "model", weights: Path | None = None,
         variants: Sequence[str] = (), also: Sequence[Mapping[str, int]] = (),
         **options: Any) -> Path:
    """Write a model, or the path of one, as a library. `variants`: several feature sets. `also`:
    sizes that get code of their own."""
    source = str(model) if isinstance(model, str | Path) else model_of(model)
    given = CompileOptions(**options)
    chosen = [replace(given, features=v, beside=tuple(variants)) for v in variants] or [given]
    sized = [[(sizes, Compiler(source, replace(each, dims=sizes))) for sizes in also]
             for each in chosen]
    write_library([Compiler(source, each) for each in chosen], path, name, weights, sized)
    assert form_of(path) == path.suffix
    return path


def build(sources: Sequence[Path], made: Path, *flags: str, strict: bool = True) -> None:
    """Compile a C program, with the libraries among its sources."""
    done = processes.run(
        ["cc", *(STRICT if strict else ()), *flags, "-o", str(made), *map(str, sources), "-lm",
         "-lpthread", f"-Wl,-rpath,{made.parent}"], text=True, capture_output=True, limit=120)
    assert done.returncode == 0, done.stderr


def output_of(program: Path, *arguments: str) -> str:
    """What a program prints; it must end well."""
    done = processes.run([str(program), *arguments], text=True, capture_output=True, limit=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout
