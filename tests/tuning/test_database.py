"""Winners on disk: several machines, several processes, and files that are none."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.diagnostics import StrataError
from compiler.options import CompileOptions
from compiler.programs.circumstances import options_text
from compiler.tuning import files
from compiler.tuning.database import Database, Unreadable, Winner, choices_for, with_library
from compiler.tuning.files import NAME, tuned_files
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.contract import Choice

SCHEDULE = Schedule((Level("grid", Symbol.axis("a0"), 6),
                     Level("loop", Symbol.axis("a1"), 1, unroll=4)), (("pack", 1),))


def winner(kernel: str, gain: float = 1.5, schedule: Schedule | None = SCHEDULE) -> Winner:
    return Winner(kernel, Choice(schedule, gain), 0.001, "default", "contract_0")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRATA_TUNED", raising=False)


def test_a_file_of_no_winners(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "none.sqlite"), "machine")
    assert database.read() == {}
    database.make()
    database.make()
    assert (tmp_path / "none.sqlite").is_file() and database.read() == {}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "new folder" / "w.sqlite")
    here, there = Database(path, "machine 1"), Database(path, "machine 2")
    assert here.read() == {}
    here.write(winner("k"))
    here.write(winner("rules", 1.0, None))
    there.write(winner("k", 2.0))
    here.write(winner("k", 1.7))
    assert here.read() == {"k": winner("k", 1.7), "rules": winner("rules", 1.0, None)}
    assert there.read() == {"k": winner("k", 2.0)}


def test_many_may_write_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "w.sqlite")

    def write(number: int) -> None:
        Database(path, "m").write(winner(f"k{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert len(Database(path, "m").read()) == 40


def test_a_file_of_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "w.sqlite"), "m")
    database.write(winner("k"))
    tmp_path.chmod(0o500)
    try:
        assert database.read() == {"k": winner("k")}
    finally:
        tmp_path.chmod(0o700)


def test_a_sealed_file_is_one_file_and_stays_as_it_is(tmp_path: Path) -> None:
    shipped = tmp_path / "package" / NAME
    shipped.parent.mkdir()
    for machine in ("m", "another"):
        Database(str(tmp_path / "w.sqlite"), machine).write(winner("k"))
    for _ in range(2):
        Database(str(tmp_path / "w.sqlite"), "m").seal(str(shipped))
    before = shipped.read_bytes()
    sealed = Database(str(shipped), "m")
    assert sealed.read() == {"k": winner("k")} == Database(str(shipped), "another").read()
    assert Database(str(shipped), "a later space").read() == {}
    with pytest.raises(Unreadable, match="sealed"):
        sealed.write(winner("other"))
    assert list(shipped.parent.iterdir()) == [shipped] and shipped.read_bytes() == before
    again = Database(str(tmp_path / "again.sqlite"), "m")
    again.begin_with(str(shipped))
    again.write(winner("other"))
    assert again.read().keys() == {"k", "other"}
    Database(str(tmp_path / "empty.sqlite"), "m").begin_with("/nowhere.sqlite")
    assert (tmp_path / "empty.sqlite").is_file()


def test_what_ships_with_a_target_is_used_behind_the_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shipped = tmp_path / "cache" / NAME, tmp_path / "shipped.sqlite"
    monkeypatch.setattr(files, "shipped_file", lambda target: str(shipped))
    options = CompileOptions(cache=str(own.parent))
    texts = {options_text(options)}
    for kernel in ("both", "theirs"):
        Database(str(tmp_path / "w.sqlite"), "m").write(winner(kernel, 1.2))
    Database(str(tmp_path / "w.sqlite"), "m").seal(str(shipped))
    texts.add(options_text(options))
    Database(str(own), "m").write(winner("both", 1.7))
    texts.add(options_text(options))
    found = choices_for(options, "m")
    assert {k: c.gain for k, c in found.items()} == {"both": 1.7, "theirs": 1.2}
    assert choices_for(replace(options, cache="off"), "m").keys() == {"both", "theirs"}
    assert len(texts) == 3  # compiled models depend on both


def test_the_faster_one_of_those_without_and_with_a_library(tmp_path: Path) -> None:
    options = CompileOptions(cache=str(tmp_path))
    plain = Database(str(tmp_path / NAME), "m")
    library = Database(str(tmp_path / NAME), with_library("m", "blas 1"))
    for database, gains in ((plain, {"a": 1.5, "b": 1.2}), (library, {"a": 1.3, "b": 1.3, "c": 2})):
        for kernel, gain in gains.items():
            database.write(winner(kernel, gain))

    def gains_of(*machine: str) -> dict[str, float]:
        return {k: c.gain for k, c in choices_for(options, *machine).items()}

    assert gains_of("m") == gains_of("m", "blas 2") == {"a": 1.5, "b": 1.2}
    assert gains_of("m", "blas 1") == {"a": 1.5, "b": 1.3, "c": 2}


def damaged(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def of_others(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()


def bad_row(path: Path) -> None:
    Database(str(path), "m").write(winner("k"))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE winners SET schedule = 'no schedule'")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("make", [damaged, of_others, bad_row])
def test_files_that_cannot_be_read(
    make: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(make)
    make(tmp_path / NAME)
    with pytest.raises(Unreadable):
        Database(str(tmp_path / NAME), "m").read()
    assert choices_for(CompileOptions(cache=str(tmp_path)), "m") == {}
    assert "and is ignored" in capsys.readouterr().err
    with pytest.raises(StrataError, match="cannot use the tuned schedules"):
        choices_for(CompileOptions(tuned=str(tmp_path / NAME)), "m")


@pytest.mark.parametrize("make", [damaged, of_others])
def test_files_that_are_none_stay_as_they_are(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / NAME)
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(Unreadable):
        Database(str(tmp_path / NAME), "m").write(winner("k"))
    assert (tmp_path / NAME).read_bytes() == before


def test_which_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompileOptions(cache=str(tmp_path))
    assert tuned_files(options) == []
    Database(str(tmp_path / NAME), "m").write(winner("k"))
    assert tuned_files(options) == [str(tmp_path / NAME)]
    assert tuned_files(replace(options, tuned="off")) == []
    assert tuned_files(replace(options, cache="off")) == []
    other = tmp_path / "else.sqlite"
    other.touch()
    assert tuned_files(replace(options, tuned=str(other))) == [str(other)]
    monkeypatch.setenv("STRATA_TUNED", "off")
    assert tuned_files(options) == []
    assert tuned_files(replace(options, tuned=str(other))) == [str(other)]


def test_a_named_file_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nowhere.sqlite", "."):
        with pytest.raises(StrataError, match="there is no such file"):
            CompileOptions(tuned=str(tmp_path / name))
    options = CompileOptions()
    monkeypatch.setenv("STRATA_TUNED", str(tmp_path / "nowhere.sqlite"))
    with pytest.raises(StrataError, match="there is no file"):
        choices_for(options, "m")


def test_compiled_models_depend_on_winners(tmp_path: Path) -> None:
    options = CompileOptions(cache=str(tmp_path))
    texts = {options_text(options)}
    for kernel in ("a", "b"):
        Database(str(tmp_path / NAME), "m").write(winner(kernel))
        texts.add(options_text(options))
    assert len(texts) == 3
    assert options_text(options) in texts
