"""The part of compilation that commands share: options and the instruments they require."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compiler.cli import arguments as shared
from compiler.cli.standard_streams import is_standard, standard_model
from compiler.executable import Executable, compile_with, dumps_of
from compiler.instrument import Instrument
from compiler.instrument.kept import KeptCode
from compiler.instrument.progress import Progress
from compiler.instrument.timing import Timing
from compiler.io.printing import show_text
from compiler.options import CompileOptions, cache_root

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.pipeline.driver import Compiler


@dataclass
class Session:
    """One run of a command: its options and instruments."""

    options: CompileOptions
    command: str
    progress: Progress
    instruments: list[Instrument]

    def compiler(self, model: str | MemoryModel, *more: Instrument) -> Compiler:
        """The compiler of a model, with dumps if they are requested."""
        from compiler.pipeline.driver import Compiler

        watching = [*self.instruments, *more, *dumps_of(self.options)]
        return Compiler(read_at_once(model), self.options, watching, self.command)

    def for_each(self, sets: Sequence[str]) -> list[Session]:
        """The same session for each of several sets of features, whose codes share constants."""
        return [replace(self, options=replace(self.options, features=one, beside=tuple(sets)))
                for one in sets]

    def with_sizes(self, sizes: Mapping[str, int]) -> Session:
        """The same session with these sizes of the model fixed, too."""
        dims = {**self.options.dims, **sizes}
        return replace(self, options=replace(self.options, dims=dims, specialize=None))

    def compile(self, model: str | MemoryModel, *more: Instrument) -> Executable:
        return compile_with(read_at_once(model), self.options, [*self.instruments, *more],
                            self.command)


def read_at_once(model: str | MemoryModel) -> str | MemoryModel:
    """The model, read from standard input if it is `-`."""
    return standard_model() if is_standard(model) else model


def _kept(options: CompileOptions, code: KeptCode) -> str:
    """What remains of the work if it is interrupted now."""
    dumps = "" if options.dump_dir is None else f"the dumps so far are in {options.dump_dir}"
    return "; ".join(filter(None, (dumps, str(code)))) or "nothing was written"


@contextmanager
def session(arguments: argparse.Namespace, threads: int | None = None) -> Generator[Session]:
    """A session for parsed arguments. Pass times are printed at its end, if requested."""
    options = shared.options_from(arguments, threads)
    code = KeptCode(cache_root(options.cache))
    arguments.interrupt.kept = lambda: _kept(options, code)
    timing = Timing()
    with Progress(arguments.progress or None) as progress:
        watching: list[Instrument] = [progress, code]
        watching += [timing] if arguments.timing else []
        yield Session(options, shared.shell_command(arguments.command_words), progress, watching)
    if arguments.timing:
        show_text(timing.table(), file=sys.stderr)
