"""The folder of a dump. Only files written by dumps may be replaced.

    .strata-dump.json    the files that a dump wrote, each with its size and time of change

A file that somebody created or edited is not in that list, or its size or time differs. It is left
alone, and a dump that would have to overwrite it is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from compiler.diagnostics import Problem, StrataError, some_of
from compiler.io.output import replacing, write_bytes

LIST = ".strata-dump.json"
_HINT = "move them away, or name another folder"


class DumpFolder:
    """A dump folder, and the files written so far."""

    def __init__(self, path: Path):
        self.path = path
        self._written: dict[str, list[int]] = {}

    def begin(self) -> None:
        """Create the folder, and remove an earlier dump. Raises StrataError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            earlier = _listed(self.path)
            edited = [name for name, known in earlier.items()
                      if _state(self.path / name) not in (None, known)]
            if edited:
                raise StrataError(f"cannot dump into {self.path}", [Problem(
                    f"{some_of(sorted(edited))} changed after an earlier dump wrote them",
                    hint=_HINT)])
            for name in earlier:
                (self.path / name).unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            what = error.strerror if isinstance(error, OSError) else str(error)
            raise StrataError(f"cannot write into {self.path}: {what}") from None
        self._keep_list()

    @contextmanager
    def writing(self, name: str) -> Generator[BinaryIO]:
        """A file of the dump, which appears once it is complete.

        Raises StrataError, also if a file that no dump wrote has that name.
        """
        path = self.path / name
        if _state(path) != self._written.get(name):
            raise StrataError(f"cannot dump into {self.path}", [Problem(
                f"'{name}' is there, and no dump wrote it", hint=_HINT)])
        with replacing(path) as file:
            yield file
        written = _state(path)
        if written is not None:
            self._written[name] = written
        self._keep_list()

    def write(self, name: str, text: str) -> None:
        with self.writing(name) as file:
            file.write(text.encode())

    def _keep_list(self) -> None:
        content = {"run": _run(), "files": self._written}
        write_bytes(self.path / LIST, json.dumps(content, indent=1).encode())


def folder_of_graph(base: Path) -> Path:
    """A subfolder for one of several graphs: the first that this process has not used yet."""
    number = 0
    while _content(base / f"graph-{number}").get("run") == _run():
        number += 1
    return base / f"graph-{number}"


def _run() -> str:
    """A unique identification of this process: its id and start time."""
    began = ""
    with suppress(OSError, IndexError), open(f"/proc/{os.getpid()}/stat", encoding="ascii",
                                             errors="replace") as file:
        began = file.read().rpartition(")")[2].split()[19]
    return f"{os.getpid()} {began}"


def _content(folder: Path) -> dict[str, Any]:
    """The contents of an earlier dump's list; empty if there is no readable one."""
    try:
        found: Any = json.loads((folder / LIST).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _listed(folder: Path) -> dict[str, Any]:
    """The files that an earlier dump wrote, restricted to names inside the folder."""
    files: Any = _content(folder).get("files")
    if not isinstance(files, dict):
        return {}
    return {name: known for name, known in cast(dict[Any, Any], files).items()
            if isinstance(name, str) and os.path.basename(name) == name and name not in ("..", ".")}


def _state(path: Path) -> list[int] | None:
    """The size and modification time of a file; None if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return [found.st_size, found.st_mtime_ns]
