"""Native code in this process: compiles LLVM IR (through the cache) and links it.

LLVM compiles one module at a time per process. If there is much to compile and there are several
cores, other processes take a share, from the first modules on. The first of them start while the
passes still run (`foresee_texts`).
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from heapq import heappop, heappush
from queue import SimpleQueue
from typing import NamedTuple

import llvmlite.binding as llvm

from targets.cpu.build import worker
from targets.cpu.build.cache import ObjectCache, object_key
from targets.cpu.build.helpers import LOST, Helper, are_foreseen, dismiss, foresee, helper
from targets.cpu.build.image import LinkError, link_image
from targets.cpu.build.native import Library, load_image
from targets.cpu.machine import Machine

_SECONDS_PER_BYTE = 0.8e-6
"""The rough time of code generation per byte of LLVM IR; decides whether helpers pay."""

_HELPERS_PAY = 0.5
"""The seconds of work from which starting another process pays."""

_OPERATIONS_OF_HELPER = 150
"""The operations of a model at graph level for each of which another process is foreseen."""

_MOST_FORESEEN = 2

_IN_ADVANCE = 1
"""The texts that wait in a process while it compiles another one."""


def foresee_texts(operations: int, machine: Machine) -> None:
    """Start processes that will compile the texts of a model of so many operations."""
    foresee(min(machine.cores - 1, operations // _OPERATIONS_OF_HELPER, _MOST_FORESEEN))


def compile_texts(
    texts: Iterable[str], machine: Machine, cache_: ObjectCache,
    report: Callable[[int], None] | None = None,
) -> list[bytes]:
    """The object code of each text. Equal texts are compiled once.

    While `texts` produces the next text, other processes compile the earlier ones. Each result is
    kept as soon as it is ready, so that an interrupted compilation loses little. After that,
    `report` is called with the number of texts that have their code, from any thread.
    """
    keys: list[str] = []
    found: dict[str, bytes | None] = {}
    with _Crew(machine, cache_.put, report) as crew:
        for text in texts:
            keys.append(key := object_key(text, machine.key))
            if key in found:
                crew.have()
                continue
            found[key] = code = cache_.get(key)
            if code is None:
                crew.add(key, text)
            else:
                crew.have()
        compiled = crew.finish()
    if compiled:
        cache_.trim(compiled)
    return [compiled[key] if (code := found[key]) is None else code for key in keys]


def compile_fixed(text: str, machine: Machine, cache_: ObjectCache) -> bytes:
    """The object code of a text that many models share and that runs briefly; this process
    compiles it once."""
    key = object_key(text, f"{machine.key} quick")
    found = cache_.get(key)
    if found is None:
        found = _compiled_once(text, machine)
        cache_.put(key, found)
    return found


def compile_quickly(text: str, machine: Machine, cache_: ObjectCache) -> bytes:
    """The object code of a text that runs briefly; this process compiles it."""
    key = object_key(text, f"{machine.key} quick")
    found = cache_.get(key)
    if found is None:
        found = worker.compile_text(text, *machine.code_generator, level=worker.QUICK)
        cache_.put(key, found)
    return found


@cache
def _compiled_once(text: str, machine: Machine) -> bytes:
    return worker.compile_text(text, *machine.code_generator, level=worker.QUICK)


class _Job(NamedTuple):
    """A text to compile. The longest one comes first."""

    place: int
    key: str
    text: str


class _Crew:
    """Texts waiting to be compiled. The longest goes first, so that all processes end together."""

    def __init__(
        self, machine: Machine, keep: Callable[[str, bytes], None],
        report: Callable[[int], None] | None = None,
    ):
        self.machine, self.keep, self.report = machine, keep, report
        self.codes: dict[str, bytes] = {}
        self._had = 0
        self._work = 0.0
        self._waiting: list[_Job] = []
        self._helpers: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._is_complete = False

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        self._complete()
        dismiss()

    def have(self) -> None:
        """Count a text whose code exists already."""
        self._had += 1
        self._count()

    def _made(self, key: str, code: bytes) -> None:
        self.codes[key] = code
        self.keep(key, code)
        self._count()

    def _count(self) -> None:
        if self.report is not None:
            self.report(self._had + len(self.codes))

    def add(self, key: str, text: str) -> None:
        """Add a text to compile; starts another helper if there is work and a core for it."""
        with self._changed:
            heappush(self._waiting, _Job(-len(text), key, text))
            self._changed.notify()
        self._work += len(text) * _SECONDS_PER_BYTE
        worthwhile = int(self._work / _HELPERS_PAY)
        if are_foreseen() or len(self._helpers) < min(self.machine.cores - 1, worthwhile):
            self._helpers.append(threading.Thread(target=self._help, daemon=True))
            self._helpers[-1].start()

    def finish(self) -> dict[str, bytes]:
        """Compile the remaining texts here, including those that helpers failed to compile."""
        self._complete()
        self._compile_rest()
        for thread in self._helpers:
            thread.join()
        self._compile_rest()
        return self.codes

    def _complete(self) -> None:
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def _compile_rest(self) -> None:
        while (job := self._next()) is not None:
            code = worker.compile_text(job.text, *self.machine.code_generator)
            self._made(job.key, code)

    def _help(self) -> None:
        """Pass one text after another to a process, until there are no more. It always has one in
        advance: this thread may have to wait for the interpreter."""
        with helper() as process:
            sent, free = SimpleQueue[_Job | None](), threading.Semaphore(_IN_ADVANCE + 1)
            receiver = threading.Thread(target=self._receive, args=(process, sent, free),
                                        daemon=True)
            receiver.start()
            with contextlib.suppress(*LOST):
                while free.acquire() and (job := self._next()) is not None:
                    sent.put(job)
                    process.send(job.text, self.machine)
            sent.put(None)
            receiver.join()

    def _receive(
        self, process: Helper, sent: SimpleQueue[_Job | None], free: threading.Semaphore
    ) -> None:
        """Take the code of what was sent to a process. Texts that it loses wait again."""
        while (job := sent.get()) is not None:
            try:
                self._made(job.key, process.receive())
            except LOST:
                with self._changed:
                    heappush(self._waiting, job)
            free.release()

    def _next(self) -> _Job | None:
        """The longest text that waits; None once there are no more."""
        with self._changed:
            while not self._waiting and not self._is_complete:
                self._changed.wait()
            return heappop(self._waiting) if self._waiting else None


# ---------------------------------------------------------------------- linking
class _Linker:
    """The process's JIT, and the numbers of the libraries in it."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.jit = llvm.create_lljit_compiler()
        self.numbers = itertools.count()


@cache
def _linker() -> _Linker:
    return _Linker()


def link(objects: Sequence[bytes], entry: str) -> Library:
    """Link object code into this process; `entry` is the function whose address is wanted.

    LLVM's own linker is used where images, which are much lighter, are not possible.
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
