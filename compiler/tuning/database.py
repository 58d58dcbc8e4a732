"""A SQLite file of winners: the fastest schedule per machine and kernel, and its gain.

Any number of processes may read and write at once: SQLite's write-ahead log has readers see whole
transactions, and each winner is one. A damaged or foreign file is an error if it is written or
named explicitly; otherwise it is ignored.

A file that ships with a target is `sealed`: it is a single file without a log, can be read from
read-only folders, and is never written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from xdsl.utils.exceptions import ParseError

from compiler.diagnostics import Problem, StrataError
from compiler.io.printing import show
from compiler.options import AUTO
from compiler.tuning.files import named_file, tuned_files
from dialects.strata.schedule import Schedule, parse_schedule
from passes.contract import Choice, Choices

if TYPE_CHECKING:
    from compiler.options import CompileOptions

_APPLICATION = 0x53747261
"""The application id in a file's header: `Stra`."""
_FORMAT = 1
_WRITE_FORMAT, _SEALED = 18, 1
"""The header byte for the write-ahead log, and its value without one."""
_PATIENCE = 10.0
"""Seconds to wait for other writers."""
_WITH_LOG = "PRAGMA journal_mode = WAL"
_NEW = (
    _WITH_LOG, f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
    "CREATE TABLE machines (machine TEXT PRIMARY KEY, description TEXT NOT NULL)",
    "CREATE TABLE winners (machine TEXT NOT NULL, kernel TEXT NOT NULL,"
    " schedule TEXT, gain REAL NOT NULL, seconds REAL NOT NULL, mode TEXT NOT NULL,"
    " name TEXT NOT NULL, PRIMARY KEY (machine, kernel))",
)


@dataclass(frozen=True)
class Winner:
    """A row. `seconds`: the time of a call with the rules' schedule. `name`: a kernel's name."""

    kernel: str
    choice: Choice
    seconds: float
    mode: str
    name: str


class Unreadable(Exception):
    """The file is not a database of winners; the message says why."""


class Database:
    """The winners of one machine in a file."""

    def __init__(self, path: str, machine: str):
        """`machine`: the target's `Tuning.key`, on which schedules depend."""
        self.path, self.description = os.path.abspath(path), machine
        self.machine = hashlib.sha256(machine.encode()).hexdigest()[:16]

    def read(self) -> dict[str, Winner]:
        """All winners by kernel; none if there is no file. Raises Unreadable."""
        if not os.path.exists(self.path):
            return {}
        query = ("SELECT kernel, schedule, gain, seconds, mode, name FROM winners "
                 "WHERE machine = ?")
        with self._connection(write=False) as connection:
            return {row[0]: _winner(*row)
                    for row in connection.execute(query, (self.machine,))}

    def make(self) -> None:
        """Create the file if there is none. Raises Unreadable."""
        with self._connection(write=True):
            pass

    def write(self, winner: Winner) -> None:
        """Store a winner, replacing the previous one. Raises Unreadable."""
        schedule = winner.choice.schedule
        row = (self.machine, winner.kernel, None if schedule is None else str(schedule),
               winner.choice.gain, winner.seconds, winner.mode, winner.name)
        with self._connection(write=True) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO machines VALUES (?, ?)",
                               (self.machine, self.description))
            connection.execute("INSERT OR REPLACE INTO winners VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def seal(self, path: str) -> None:
        """Write all winners, of all machines, to a sealed file. Raises Unreadable."""
        with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path))) as aside:
            new = os.path.join(aside, "new.sqlite")
            with self._connection(write=False) as connection:
                connection.execute("VACUUM INTO ?", (new,))
            with contextlib.closing(_connect(new, "rw")) as copy:
                copy.execute("PRAGMA journal_mode = DELETE")
            os.replace(new, path)

    def begin_with(self, path: str) -> None:
        """Create the file as a copy of another one, sealed or not, if that exists. Raises
        Unreadable.
        """
        if not os.path.exists(path):
            return self.make()
        Database(path, self.description).seal(self.path)
        with contextlib.closing(_connect(self.path, "rw")) as connection:
            connection.execute(_WITH_LOG)
        return None

    @contextlib.contextmanager
    def _connection(self, write: bool) -> Generator[sqlite3.Connection]:
        """A connection for some statements, whose errors are also raised as Unreadable."""
        try:
            connection = self._open(write)
            try:
                yield connection
            finally:
                connection.close()
        except ParseError as error:
            raise Unreadable(f"a schedule in it: {error.msg}") from None
        except (sqlite3.Error, OSError, TypeError, ValueError, RecursionError) as error:
            raise Unreadable(str(error)) from None

    def _open(self, write: bool) -> sqlite3.Connection:
        """Raises sqlite3.Error and OSError."""
        if write and not os.path.exists(self.path):
            _create(self.path)
        fixed = _is_sealed(self.path) or not os.access(os.path.dirname(self.path), os.W_OK)
        if write and fixed:
            raise sqlite3.OperationalError("it is sealed, or in a folder that cannot be written")
        connection = _connect(self.path, "ro&immutable=1" if fixed else "rw")
        try:
            _bound(connection)
            _check(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_sealed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(_WRITE_FORMAT + 1)[_WRITE_FORMAT:] == bytes([_SEALED])


def _bound(connection: sqlite3.Connection) -> None:
    """Bound the work of statements, since a table in a foreign file may be an infinite view.

    Texts that are not UTF-8 are read, and then rejected as malformed values.
    """
    until = time.monotonic() + 3 * _PATIENCE
    connection.set_progress_handler(lambda: time.monotonic() > until, 100_000)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.text_factory = _text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError for a foreign file."""
    (application,), = connection.execute("PRAGMA application_id")
    (version,), = connection.execute("PRAGMA user_version")
    if (application, version) != (_APPLICATION, _FORMAT):
        raise sqlite3.DatabaseError("it does not hold tuned schedules in this format")
    tables = dict(connection.execute("SELECT name, type FROM sqlite_schema"))
    if tables.get("winners") != "table" or tables.get("machines") != "table":
        raise sqlite3.DatabaseError("it lacks the tables of winners and machines")


def _connect(path: str, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?mode={mode}", _PATIENCE, uri=True)


def _create(path: str) -> None:
    """Create an empty file under a temporary name, and rename it unless another process was
    faster.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        new = os.path.join(aside, "new.sqlite")
        connection = _connect(new, "rwc")
        for statement in _NEW:
            connection.execute(statement)
        connection.close()
        with contextlib.suppress(FileExistsError):
            os.link(new, path)


def _winner(
    kernel: object, schedule: object, gain: object, seconds: object, mode: object, name: object
) -> Winner:
    """Check a row, since SQLite allows any type in any column. Raises TypeError and ParseError."""
    if not (isinstance(kernel, str) and isinstance(schedule, str | None)
            and isinstance(mode, str) and isinstance(name, str)):
        raise TypeError("a row holds something other than text")
    if not (isinstance(gain, float) and isinstance(seconds, float)):
        raise TypeError("a row holds something other than numbers")
    return Winner(kernel, Choice(_schedule(schedule), gain), seconds, mode, name)


def _schedule(text: str | None) -> Schedule | None:
    """Raises ParseError."""
    return None if text is None else parse_schedule(text)


def choices_for(options: CompileOptions, machine: str, *libraries: str) -> Choices:
    """The schedules for a compilation; with `libraries`, the faster ones without or with them.

    Raises StrataError for an explicitly named file that cannot be read.
    """
    found = _found(options, machine)
    for library in libraries:
        for kernel, choice in _found(options, with_library(machine, library)).items():
            if kernel not in found or choice.gain > found[kernel].gain:
                found[kernel] = choice
    return found


def with_library(machine: str, library: str) -> str:
    """The machine key of winners that may be library calls."""
    return f"{machine} {library}"


def _found(options: CompileOptions, machine: str) -> dict[str, Choice]:
    found: dict[str, Choice] = {}
    for path in tuned_files(options):
        found |= _read(path, machine, named=named_file(options.tuned) != AUTO)
    return found


def _read(path: str, machine: str, named: bool) -> Choices:
    if named and not os.path.isfile(path):
        raise StrataError(f"there is no file {path}, which --tuned names")
    try:
        return {k: w.choice for k, w in Database(path, machine).read().items()}
    except Unreadable as error:
        if named:
            raise unreadable(path, error) from None
        show(f"note: {path} cannot be read ({error}), and is ignored; `tune` makes a new one when "
              "it is gone", file=sys.stderr)
        return {}


def unreadable(path: str, error: Unreadable) -> StrataError:
    """The error message for the user."""
    return StrataError(f"cannot use the tuned schedules in {path}", [Problem(
        str(error), hint="remove the file, or name another")])
