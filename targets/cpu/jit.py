"""Native code in this process: compile LLVM texts (through the cache) and link them.

LLVM compiles one text at a time in a process. Where much is to be compiled and there are several
cores, other processes take a share.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import llvmlite.binding as llvm

from targets.cpu import worker
from targets.cpu.cache import ObjectCache, object_key
from targets.cpu.image import LinkError, link_image
from targets.cpu.machine import Machine
from targets.cpu.native import Library, load_image

_SECONDS_PER_BYTE = 1.0e-6
"""What code generation takes per byte of LLVM text, roughly; decides whether helpers pay."""

_HELPERS_PAY = 1.5
"""Seconds of work from which on starting other processes pays."""


def compile_texts(
    texts: Sequence[str], machine: Machine, cache_: ObjectCache
) -> list[bytes]:
    """The object code of each text. Equal texts are compiled once."""
    keys = [object_key(text, machine.key) for text in texts]
    wanted = dict(zip(keys, texts, strict=True))
    found = {key: cache_.get(key) for key in wanted}
    missing = [key for key, code in found.items() if code is None]
    codes = _compile([wanted[key] for key in missing], machine)
    for key, code in zip(missing, codes, strict=True):
        cache_.put(key, code)
        found[key] = code
    if missing:
        cache_.trim()
    return [found[key] or b"" for key in keys]


def _compile(texts: list[str], machine: Machine) -> list[bytes]:
    """Here, or shared with other processes if there is enough to do."""
    jobs = [(text, machine.cpu, machine.attributes) for text in texts]
    work = sum(map(len, texts)) * _SECONDS_PER_BYTE
    shares = min(machine.cores, len(jobs), int(work / _HELPERS_PAY) + 1)
    if shares < 2:
        return [worker.compile_text(*job) for job in jobs]
    return _compile_in_processes(jobs, shares)


def _compile_in_processes(jobs: list[tuple[str, str, str]], shares: int) -> list[bytes]:
    """Deal the jobs, long ones first, to helpers and to this process."""
    order = sorted(range(len(jobs)), key=lambda k: -len(jobs[k][0]))
    parts = [order[k::shares] for k in range(shares)]
    helpers = [_Helper([jobs[k] for k in part]) for part in parts[1:]]
    codes = {k: worker.compile_text(*jobs[k]) for k in parts[0]}
    for part, helper in zip(parts[1:], helpers, strict=True):
        codes.update(zip(part, helper.result(), strict=True))
    return [codes[k] for k in range(len(jobs))]


class _Helper:
    """Another process that compiles a list of jobs; this one takes over if it fails."""

    def __init__(self, jobs: list[tuple[str, str, str]]):
        self.jobs = jobs
        self.process = subprocess.Popen(
            [sys.executable, worker.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        assert self.process.stdin is not None
        pickle.dump(jobs, self.process.stdin)
        self.process.stdin.close()

    def result(self) -> list[bytes]:
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        if self.process.wait() != 0:
            return [worker.compile_text(*job) for job in self.jobs]
        return pickle.loads(output)


# ---------------------------------------------------------------------- linking
class _Linker:
    """The process's JIT and the numbers of the libraries in it."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.jit = llvm.create_lljit_compiler()
        self.numbers = itertools.count()


@cache
def _linker() -> _Linker:
    return _Linker()


def link(objects: Sequence[bytes], entry: str) -> Library:
    """Link object codes into this process; `entry` is the function whose address is wanted.

    LLVM's own linker serves where images are not possible, which are much lighter.
    """
    distinct = list(dict.fromkeys(objects))
    try:
        return load_image(link_image(distinct, entry))
    except LinkError:
        return _link_with_llvm(distinct, entry)


def _link_with_llvm(objects: Sequence[bytes], entry: str) -> Library:
    builder = llvm.JITLibraryBuilder().add_current_process().export_symbol(entry)
    for code in objects:
        builder.add_object_img(code)
    linker = _linker()
    tracker = builder.link(linker.jit, f"strata{next(linker.numbers)}")
    return Library(tracker, tracker[entry])
