"""The folder of a cache: whose it is, and how much is in it."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from targets import kept
from targets.files import mark_used, private_folder, read_private, trim, write_whole


def test_a_new_folder_is_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert private_folder(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("mode", "is_private"), [
    (0o700, True), (0o755, True), (0o775, False), (0o757, False)])
def test_who_can_write_to_a_folder(tmp_path: Path, mode: int, is_private: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert private_folder(str(folder)) is is_private


def test_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    assert not private_folder(str(tmp_path / "file"))
    assert not private_folder(str(tmp_path / "file" / "inside"))
    assert not private_folder(str(tmp_path / "link"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # another user's
    assert not private_folder(str(tmp_path))


def test_files_of_others_and_links_are_not_read(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    write_whole(path, [b"con", memoryview(b"tent")])
    assert read_private(path) == b"content"
    os.symlink(path, tmp_path / "link")
    assert read_private(str(tmp_path / "link")) is None
    os.chmod(path, 0o620)
    assert read_private(path) is None
    assert read_private(str(tmp_path / "nothing")) is None


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def pieces() -> object:
        yield b"half"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_whole(str(tmp_path / "file"), pieces())  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_trimming(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "middle", "old")):
        path = tmp_path / name
        path.write_bytes(bytes(100))
        (tmp_path / f"{name}.note").write_bytes(b"x")
        os.utime(path, (time.time() - 1000 * age, time.time()))
    (tmp_path / "left.part").write_bytes(bytes(1000))
    os.utime(tmp_path / "left.part", (0, 0))
    (tmp_path / "now.part").write_bytes(bytes(1000))
    trim(str(tmp_path), 300, ".note")
    assert {p.name for p in tmp_path.iterdir() if "." not in p.name} == {"new", "middle", "old"}
    assert {p.name for p in tmp_path.glob("*.part")} == {"now.part"}
    trim(str(tmp_path), 299, ".note")
    assert {p.name for p in tmp_path.glob("*[!t]")} == {
        "new", "new.note", "middle", "middle.note"}
    trim(str(tmp_path / "nothing"), 0)


def test_uses_are_marked_once_an_hour(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    now = time.time()
    for age, is_marked in ((3000, False), (4000, True)):
        os.utime(path, (now - age, now - 9))
        mark_used(str(path))
        assert (path.stat().st_atime > now - 1) is is_marked
        assert abs(path.stat().st_mtime - (now - 9)) < 1e-3
    mark_used(str(tmp_path / "nothing"))


def test_a_store_keeps_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if only some of its files lead to a look at all of them."""
    monkeypatch.setattr(kept, "LIMIT", 40_000)
    store, most = kept.KeptFiles(str(tmp_path / "kept"), ".o"), 0
    for number in range(500):
        key = hashlib.sha256(str(number).encode()).hexdigest()
        store.put(key, bytes(1000))
        store.trim([key])
        most = max(most, len(list((tmp_path / "kept").iterdir())))
    assert 38 < most < 38 + 10 * kept.TRIMMING
    assert store.get(key) is not None
