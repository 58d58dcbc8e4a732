"""LLVM IR to object code. It is also a program of its own, so that several processes can compile.

This file imports only llvmlite, so `python worker.py` starts quickly. It reads pickled jobs (text,
cpu, attributes) from standard input until that ends, and writes the object code of each. There is
no optimization pipeline: the IR is already vectorized and hoisted, and code generation does the
rest. It has two levels: `BEST`, and `QUICK` for code that runs so briefly that compiling it well
does not pay.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import contextlib
import pickle
import sys
from functools import cache
from typing import Any

import llvmlite.binding as llvm

BEST, QUICK = 3, 0
"""LLVM's levels of code generation. `QUICK` takes an eighth of the time, for twice the
instructions."""


@cache
def target_machine(cpu: str, attributes: str, level: int = BEST) -> Any:
    """LLVM's code generator for a processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_triple(llvm.get_default_triple())
    return target.create_target_machine(
        cpu=cpu, features=attributes, opt=level, reloc="pic", codemodel="small")


def parse(text: str, cpu: str, attributes: str) -> Any:
    """The module of an LLVM text. Raises RuntimeError with LLVM's message if it is malformed."""
    machine = target_machine(cpu, attributes)
    header = (f'target triple = "{llvm.get_default_triple()}"\n'
              f'target datalayout = "{machine.target_data}"\n')
    module = llvm.parse_assembly(header + text)
    return module


def compile_text(text: str, cpu: str, attributes: str, level: int = BEST) -> bytes:
    """The object code of an LLVM text."""
    return target_machine(cpu, attributes, level).emit_object(parse(text, cpu, attributes))


def assembly_text(text: str, cpu: str, attributes: str) -> str:
    """The processor's assembly of an LLVM text."""
    return target_machine(cpu, attributes).emit_assembly(parse(text, cpu, attributes))


def main() -> None:
    with contextlib.suppress(EOFError):
        while True:
            text, cpu, attributes = pickle.load(sys.stdin.buffer)
            pickle.dump(compile_text(text, cpu, attributes), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
