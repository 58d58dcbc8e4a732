"""LLVM IR to object code. It is also a program of its own, so that several processes can compile.

This file imports only llvmlite, so `python worker.py` starts quickly. It reads pickled jobs (the
arguments of `compile_text`) from standard input until that ends, and writes the object code of
each. There is no optimization pipeline: the IR is already vectorized and hoisted, and code
generation does the rest. It has two levels: `BEST`, and `QUICK` for code that runs so briefly that
compiling it well does not pay.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

BEST, QUICK = 3, 0
"""LLVM's levels of code generation. `QUICK` takes an eighth of the time, for twice the
instructions."""


@cache
def target_machine(
    cpu: str, attributes: str, triple: str = "", abi: str = "", level: int = BEST
) -> Any:
    """LLVM's code generator for a processor, by default of this machine's architecture."""
    _initialize(bool(triple))
    target = llvm.Target.from_triple(triple or llvm.get_default_triple())
    return target.create_target_machine(
        cpu=cpu, features=attributes, opt=level, codemodel="small", abiname=abi,
        reloc="static" if triple.startswith("wasm") else "pic")


@cache
def _initialize(everything: bool) -> None:
    """Load LLVM's code generators: that of this machine, or those of all architectures."""
    if everything:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def parse(text: str, cpu: str, attributes: str, triple: str = "", abi: str = "") -> Any:
    """The module of an LLVM text. Raises RuntimeError with LLVM's message if it is malformed."""
    machine = target_machine(cpu, attributes, triple, abi)
    header = (f'target triple = "{triple or llvm.get_default_triple()}"\n'
              f'target datalayout = "{machine.target_data}"\n')
    module = llvm.parse_assembly(header + text)
    return module


def compile_text(
    text: str, cpu: str, attributes: str, triple: str = "", abi: str = "", level: int = BEST
) -> bytes:
    """The object code of an LLVM text."""
    machine = target_machine(cpu, attributes, triple, abi, level)
    return machine.emit_object(parse(text, cpu, attributes, triple, abi))


def assembly_text(
    text: str, cpu: str, attributes: str, triple: str = "", abi: str = ""
) -> str:
    """The processor's assembly of an LLVM text."""
    machine = target_machine(cpu, attributes, triple, abi)
    return machine.emit_assembly(parse(text, cpu, attributes, triple, abi))


def compile_whole(
    texts: Sequence[str], names: Mapping[str, str], cpu: str, attributes: str, triple: str = "",
    abi: str = "", level: int = BEST,
) -> bytes:
    """One object of several LLVM texts, in which only `names` are seen from outside.

    `names`: functions that the texts define or declare, and their names in the object.
    """
    whole, *others = [parse(text, cpu, attributes, triple, abi) for text in texts]
    for other in others:
        whole.link_in(other)
    for each in (*whole.functions, *whole.global_variables):
        if each.name in names:
            each.visibility = "hidden"
            each.name = names[each.name]
        elif not each.is_declaration:
            each.visibility = "default"
            each.linkage = "internal"
    return target_machine(cpu, attributes, triple, abi, level).emit_object(whole)


def main() -> None:
    with contextlib.suppress(EOFError):
        while True:
            pickle.dump(compile_text(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
