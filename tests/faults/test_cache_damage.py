"""Whatever happens to the files of the cache, a model answers right, and no process ends."""

from __future__ import annotations

import ctypes
import json
import os
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.programs.entry import WHOLE, Damaged, read_entry, write_entry
from dialects.strata.mapped import MappedFiles, mapping_of
from targets.cpu.build.cache import ObjectCache
from targets.files import read_private
from tests.faults.models import Bench, X, python, save_model

KINDS = ("entries", "records", "contents", "cpu")


# ---------------------------------------------------------------------- damage
def small_entry(folder: Path) -> tuple[str, list[np.ndarray]]:
    blobs = [np.arange(100, dtype=np.uint8), np.arange(7.0), np.zeros(0, np.uint8)]
    write_entry(str(folder / "key"), "key", {"a": [1, "two"]}, blobs)
    return str(folder / "key"), [b.view(np.uint8).copy() for b in blobs]


def is_right_or_damaged(path: str, blobs: list[np.ndarray]) -> bool:
    """Whether the file counts as damaged. What is read must be what was written."""
    try:
        facts, found = read_entry(path, "key")
    except Damaged:
        return True
    assert facts == {"a": [1, "two"]}
    for a, b in zip(found, blobs, strict=True):
        np.testing.assert_array_equal(a, b)
    return False


@pytest.mark.parametrize("bits", [1, 0xFF])
def test_every_byte_flipped(tmp_path: Path, bits: int) -> None:
    """The padding between blobs is the only part that may change unseen."""
    path, blobs = small_entry(tmp_path)
    good = Path(path).read_bytes()
    seen = 0
    for place in range(len(good)):
        content = bytearray(good)
        content[place] ^= bits
        Path(path).write_bytes(content)
        seen += is_right_or_damaged(path, blobs)
    assert seen > 0.5 * len(good)


def test_every_length(tmp_path: Path) -> None:
    path, blobs = small_entry(tmp_path)
    good = Path(path).read_bytes()
    for length in range(len(good)):
        Path(path).write_bytes(good[:length])
        assert is_right_or_damaged(path, blobs), length
    for more in (b"\0", b"x" * 64, good):
        Path(path).write_bytes(good + more)
        assert is_right_or_damaged(path, blobs)


@pytest.mark.parametrize("header", [
    "{}", "null", "[]", "7", "[" * 100_000, '{"a":' * 50_000, '{"key": "key"}',
    '{"key": "key", "facts": {}, "blobs": [[0, 99999999999, 0]], "end": 0}',
    '{"key": "key", "facts": {}, "blobs": [["a", 1, 0]], "end": 0}',
    '{"key": "key", "facts": {}, "blobs": 7, "end": 0}',
    '{"key": "key", "facts": {}, "blobs": [], "end": 99999999999999999}',
    '{"key": "key", "facts": {}, "blobs": [], "end": -1}',
    '{"key": "key", "facts": {}, "blobs": [[-5, 5, 0]], "end": 0}'],
    ids=lambda text: text[:30])
def test_a_header_that_somebody_made_up(tmp_path: Path, header: str) -> None:
    """Its checksum is right."""
    import zlib

    from compiler.programs import entry

    text = header.encode()
    (tmp_path / "key").write_bytes(
        entry._HEAD.pack(entry._MAGIC, len(text), zlib.crc32(text)) + text
        + bytes(-(entry._HEAD.size + len(text)) % 64))
    with pytest.raises(Damaged):
        read_entry(str(tmp_path / "key"), "key")


@pytest.mark.parametrize("content", [
    b"", b"\0" * 4096, b"[" * 100_000, b"null", b'{"model": {}}', b"\xff" * 64],
    ids=["empty", "zeros", "deep", "null", "foreign", "bytes"])
def test_other_contents(bench: Bench, content: bytes) -> None:
    """Of one kind of files after another: from those that are read first to those read last."""
    bench.check()
    for kind in ("records", "contents", "entries", "cpu"):
        for path in bench.files(kind):
            path.write_bytes(content)
        bench.check()
    for kind in KINDS:
        for path in bench.files(kind):
            path.write_bytes(content)
    bench.check()


def test_a_deep_record_that_is_otherwise_right(bench: Bench) -> None:
    bench.check()
    [record] = bench.files("records")
    known = json.loads(record.read_text())
    for bad in ({**known, "files": 7}, {**known, "files": []}, {**known, "key": None},
                {**known, "key": "../../.."}, {**known, "files": [["/nowhere", None, "00"]]}):
        record.write_text(json.dumps(bad))
        bench.check()
    record.write_text(json.dumps(known)[:-1] + ', "more": ' + "[" * 50_000 + "]" * 50_000 + "}")
    bench.check()


# ---------------------------------------------------------------------- exchanged
def test_two_models_exchanged_by_name(bench: Bench) -> None:
    """Entries hold their key: neither answers with the weights of the other."""
    bench.check()
    other = bench.folder / "other.onnx"
    first, bench.model = bench.model, save_model(other, 3.0)
    bench.check(3.0)
    for ending in ("", WHOLE):
        a, b = (Path(f"{path}{ending}") for path in bench.files("entries"))
        a.rename(bench.folder / "aside")
        b.rename(a)
        (bench.folder / "aside").rename(b)
    bench.check(3.0)
    bench.model = first
    bench.check(1.0)
    assert bench.compiled == 4


@pytest.mark.parametrize("kind", ["records", "contents"])
def test_records_exchanged_by_name(bench: Bench, kind: str) -> None:
    bench.check()
    first, bench.model = bench.model, save_model(bench.folder / "other.onnx", 3.0)
    bench.check(3.0)
    a, b = bench.files(kind)
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)
    bench.check(3.0)
    bench.model = first
    bench.check(1.0)


def test_object_code_exchanged_by_name(tmp_path: Path) -> None:
    kept = ObjectCache(tmp_path)
    kept.put("a", b"code of a")
    kept.put("b", b"code of b")
    os.replace(tmp_path / "cpu" / "a.o", tmp_path / "cpu" / "b.o")
    assert kept.get("a") is None and kept.get("b") is None


def test_an_entry_of_another_version(bench: Bench) -> None:
    bench.check()
    content = bench.entry.read_bytes()
    bench.entry.write_bytes(b"strata01" + content[8:])
    bench.check()
    assert bench.compiled == 2 and bench.entry.read_bytes() == content


# ---------------------------------------------------------------------- whose it is
def test_what_is_no_file_of_this_user(bench: Bench) -> None:
    """Links, pipes (which would wait for a writer), folders, other modes, another owner."""
    bench.check()
    for kind in KINDS:
        for path in bench.files(kind):
            content = path.read_bytes()
            for spoil in SPOILS:
                path.unlink()
                spoil(path, content)
                assert read_private(str(path)) is None, (kind, spoil)
                bench.check()
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                elif os.path.lexists(path):
                    path.unlink()
                path.write_bytes(content)
    bench.check()


def _link(path: Path, content: bytes) -> None:
    target = path.parent.parent / "elsewhere"
    target.write_bytes(content)
    path.symlink_to(target)


def _dangling(path: Path, content: bytes) -> None:
    path.symlink_to("nowhere")


def _pipe(path: Path, content: bytes) -> None:
    os.mkfifo(path)


def _folder(path: Path, content: bytes) -> None:
    path.mkdir()


def _open_to_all(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o666)


def _of_another(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    os.chown(path, 65534, 65534)


SPOILS = [_link, _dangling, _pipe, _folder, _open_to_all,
          *([_of_another] if os.geteuid() == 0 else [])]


# ---------------------------------------------------------------------- while it is used
def test_an_entry_cut_short_while_it_is_used(bench: Bench) -> None:
    """Mapped, the next call would end the process with SIGBUS."""
    bench.check()
    exe = bench.check()
    assert bench.compiled == 1
    os.truncate(bench.entry, 0)
    np.testing.assert_array_equal(exe(X)[0], np.full((2, 300), 8, np.float32))
    bench.check()


@pytest.mark.parametrize("how", ["cut", "written"])
def test_a_model_file_changed_while_it_is_used(bench: Bench, how: str) -> None:
    save_model(bench.model, width=100_000)  # weights that are large enough to be left in place
    exe = bench.compile(cache="off")
    if how == "cut":
        os.truncate(bench.model, 0)
    else:
        with bench.model.open("r+b") as file:
            file.write(bytes(bench.model.stat().st_size))
    np.testing.assert_array_equal(exe(X)[0], np.full((2, 100_000), 8, np.float32))


# ---------------------------------------------------------------------- clocks
@pytest.mark.parametrize("jump", [-1e9, 5.0])
def test_clocks_that_jump(bench: Bench, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    import time

    now = time.time
    bench.check()
    with monkeypatch.context() as changed:
        changed.setattr(time, "time", lambda: now() + jump)
        bench.check()
        save_model(bench.model, 2.0)
        bench.check(2.0)
        os.utime(bench.model, (0, max(0, now() + jump)))
        bench.check(2.0)
    save_model(bench.model, 4.0)
    os.utime(bench.model, (now(), now() + 1e9))
    bench.check(4.0)
    save_model(bench.model, 5.0)
    os.utime(bench.model, (now(), now() + 1e9))
    bench.check(5.0)


def test_files_are_this_users_alone(bench: Bench) -> None:
    bench.check()
    for kind in KINDS:
        for path in bench.files(kind):
            assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


CUT_WHILE_COMPILING = """
import os, sys
import numpy as np
import onnx
import compiler
from passes.graph.fold_constants import GraphFoldConstants

run = GraphFoldConstants.run

def cut(self, context, module):
    for path in sys.argv[2:]:
        os.truncate(path, 0)
    run(self, context, module)

GraphFoldConstants.run = cut
exe = compiler.compile(sys.argv[1], threads=1, cache="off")
print(float(np.asarray(exe.run([np.ones((2, 8), np.float32)])[0]).sum()))
"""


@pytest.mark.parametrize("kind", ["onnx", "external", "pt2"])
def test_a_model_file_cut_short_while_it_is_compiled(tmp_path: Path, kind: str) -> None:
    """Mapped, the next look at its weights would end the process with SIGBUS."""
    width, wanted = 100_000, 2 * 8 * 100_000.0
    files = [path := save_model(tmp_path / "model.onnx", width=width)]
    if kind == "external":
        files.append(tmp_path / "weights")
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights")
    if kind == "pt2":
        torch = pytest.importorskip("torch")
        linear = torch.nn.Linear(8, width, bias=False).eval()
        torch.nn.init.ones_(linear.weight)
        files = [path := tmp_path / "model.pt2"]
        torch.export.save(torch.export.export(linear, (torch.ones(2, 8),)), path)
    process = python(CUT_WHILE_COMPILING, path, *files)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert float(out) == wanted


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_no_constant_is_of_a_file(bench: Bench, ending: str) -> None:
    """Neither through NumPy nor through PyTorch."""
    path = save_model(bench.folder / "large.onnx", width=100_000)
    if ending == "pt2":
        torch = pytest.importorskip("torch")
        linear = torch.nn.Linear(8, 100_000).eval()
        path = bench.folder / "large.pt2"
        torch.export.save(torch.export.export(linear, (torch.ones(2, 8),)), path)
    exe = compiler.compile(path, threads=1, cache="off")
    constants: list[np.ndarray] = exe.loaded.constants  # type: ignore[attr-defined]
    files = MappedFiles.now()
    assert any(c.nbytes >= 400_000 for c in constants)
    assert not any(map(files.hold, constants))


def test_mapped_files_are_known(tmp_path: Path) -> None:
    np.arange(10_000.0).tofile(tmp_path / "numbers")
    mapped, own = np.memmap(tmp_path / "numbers", np.float64, "c"), np.arange(10_000.0)
    files = MappedFiles.now()
    assert files.hold(mapped) and files.hold(mapped[7:]) and not files.hold(own)
    hidden = np.frombuffer((ctypes.c_char * mapped.nbytes).from_address(mapped.ctypes.data))
    assert mapping_of(hidden) is None and files.hold(hidden)
