"""Programs in files: they compute what was saved, need no compiler, and are refused where they do
not fit."""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import compiler
from compiler.programs import saved
from compiler.programs.entry import write_entry
from targets.cpu import stored
from tests import processes

ROOT = Path(__file__).parents[2]
LINEAR = """
<ir_version: 8, opset_import: ["" : 17]>
linear (float[n, 8] x) => (float[n, 5] y)
<float[8, 5] w = {NUMBERS}> { p = MatMul(x, w)  y = Relu(p) }
""".replace("NUMBERS", ", ".join(f"{k % 7 - 3}.5" for k in range(40)))
SIZED = """
<ir_version: 8, opset_import: ["" : 17]>
sized (float[n] x, int64[1] k) => (int64[1, found] y, float[a, b] z) <int64[1] minus = {-1}> {
    y = NonZero(x)  shape = Concat<axis = 0>(k, minus)  z = Reshape(x, shape)
}
"""
LOOPED = """
<ir_version: 8, opset_import: ["" : 17]>
looped (float[2] x, int64 trips) => (float[2] y) <bool go = {1}> {
    y = Loop(trips, go, x) <body = turn (int64 i, bool c, float[2] v) => (bool d, float[2] u) {
        d = Identity(c)  u = Add(v, v)
    }>
}
"""
X = np.random.default_rng(0).standard_normal((3, 8), np.float32)


def compiled(text: str, **options: Any) -> compiler.Executable:
    return compiler.compile(onnx.parser.parse_model(text), threads=1, **options)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved program."""
    compiled(LINEAR).save(tmp_path / "linear.strata")
    return tmp_path / "linear.strata"


def refusal(path: Path) -> str:
    with pytest.raises(compiler.StrataError) as caught:
        compiler.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------- what is loaded
@pytest.mark.parametrize(("text", "inputs"), [
    (LINEAR, [X]), (LOOPED, [np.ones(2, np.float32), np.array(5)]),
    (SIZED, [np.array([1, 0, 2, 0, 3, 4], np.float32), np.array([2])])],
    ids=["linear", "looped", "sized"])
def test_a_loaded_program_computes_the_same(
    tmp_path: Path, text: str, inputs: list[np.ndarray]
) -> None:
    exe = compiled(text)
    exe.save(tmp_path / "program")
    loaded = compiler.load(tmp_path / "program")
    for found, expected in zip(loaded(*inputs), exe(*inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (loaded.input_names, loaded.input_types) == (exe.input_names, exe.input_types)
    assert (loaded.output_names, loaded.output_types) == (exe.output_names, exe.output_types)
    assert {loaded: 1, exe: 2}[loaded] == 1


def test_checks_survive_with_their_messages(tmp_path: Path) -> None:
    compiled(SIZED).save(tmp_path / "sized")
    loaded = compiler.load(str(tmp_path / "sized"), threads=2)
    with pytest.raises(compiler.SizeError) as caught:
        loaded(np.ones(6, np.float32), np.array([4]))
    with pytest.raises(compiler.SizeError) as expected:
        compiled(SIZED)(np.ones(6, np.float32), np.array([4]))
    assert str(caught.value) == str(expected.value)


def test_loading_needs_no_compiler_and_no_model(file: Path) -> None:
    np.save(file.with_name("x.npy"), X)
    code = """
import sys, numpy
known = set(sys.modules)
import compiler
exe = compiler.load(sys.argv[1])
numpy.save(sys.argv[3], exe(numpy.load(sys.argv[2]))[0])
print(*{m.partition(".")[0] for m in set(sys.modules) - known})
"""
    words = map(str, (file, file.with_name("x.npy"), file.with_name("y.npy")))
    done = processes.run([sys.executable, "-c", code, *words], cwd=ROOT, text=True,
                         capture_output=True, limit=120)
    assert not done.stderr
    assert not {"xdsl", "llvmlite", "onnx", "passes", "hashlib", "pickle"} & {*done.stdout.split()}
    np.testing.assert_array_equal(np.load(file.with_name("y.npy")), compiled(LINEAR)(X)[0])


def test_a_loaded_program_is_saved_again(file: Path) -> None:
    again = file.with_name("again")
    compiler.load(file).save(again)
    assert again.read_bytes() == file.read_bytes()


def test_a_loaded_program_has_no_levels(file: Path) -> None:
    exe = compiler.load(file)
    for ask in (lambda: exe.text("loop"), exe.model_constants, lambda: exe.precision_error([X])):
        with pytest.raises(compiler.StrataError, match="machine code, without its model"):
            ask()


def test_the_file_is_private_and_leaves_nothing_beside_it(file: Path) -> None:
    compiler.load(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_link_leads_to_the_file(file: Path) -> None:
    (file.parent / "latest").symlink_to(file.name)
    np.testing.assert_array_equal(compiler.load(file.parent / "latest")(X)[0],
                                  compiler.load(file)(X)[0])


# ---------------------------------------------------------------------- what cannot be saved
def test_programs_that_only_live_in_a_process(tmp_path: Path) -> None:
    for options, reason in (({"target": "reference"}, "the target 'reference' cannot be written"),
                            ({"specialize": compiler.Specialize()}, "specialized for sizes")):
        with pytest.raises(compiler.StrataError, match=reason):
            compiled(LINEAR, **options).save(tmp_path / "program")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    exe = compiled(LINEAR)
    for path in (tmp_path / "none" / "program", tmp_path):
        with pytest.raises(compiler.StrataError, match="cannot write"):
            exe.save(path)
    with pytest.raises(compiler.StrataError, match="3 is not a path"):
        exe.save(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- damage
@pytest.mark.parametrize("place", [0.0, 0.001, 0.02, 0.2, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut(file: Path, place: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:int(place * len(content))])
    assert "cannot load" in refusal(file)
    file.write_bytes(content + b"more")
    assert "its length is not what was written" in refusal(file)


def test_a_byte_that_changed(file: Path) -> None:
    """A changed file is refused, or only padding changed and the program is what it was."""
    good, expected, refused = file.read_bytes(), compiler.load(file)(X)[0], 0
    places = range(0, len(good), max(1, len(good) // 400))
    for place in places:
        file.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1:])
        try:
            loaded = compiler.load(file)
        except compiler.StrataError:
            refused += 1
            continue
        np.testing.assert_array_equal(loaded(X)[0], expected)
    assert refused > 0.9 * len(places)


@pytest.mark.parametrize("content", [b"", b"strata02", b"\0" * 4096, LINEAR.encode()])
def test_what_is_no_saved_program(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    (tmp_path / "other").chmod(0o600)
    assert "Executable.save writes such files" in refusal(tmp_path / "other")


def test_an_entry_of_the_cache_is_no_saved_program(tmp_path: Path) -> None:
    write_entry(str(tmp_path / "entry"), "key", {}, [np.zeros(8, np.uint8)])
    assert "Executable.save writes such files" in refusal(tmp_path / "entry")


# ---------------------------------------------------------------------- what does not fit
def rewrite_header(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header as somebody would who knows the format: its checksum is right again."""
    head, content = struct.Struct("<8sQI4x"), file.read_bytes()
    magic, length, _ = head.unpack_from(content)
    header = json.loads(content[head.size: head.size + length])
    blobs = content[-(-(head.size + length) // 64) * 64:]
    change(header)
    text = json.dumps(header).encode()
    front = head.pack(magic, len(text), zlib.crc32(text)) + text
    file.write_bytes(front + bytes(-len(front) % 64) + blobs)


@pytest.mark.parametrize(("fact", "value", "message"), [
    ("strata", "9.9", "saved by Strata 9.9, and this is"),
    ("convention", "0", "another build of Strata"),
    ("system", "Plan9 vax", "compiled for Plan9 vax"),
    ("needs", ["sse2", "avx9000"], "this processor lacks: avx9000"),
    ("target", "tpu", "no target 'tpu'"), ("target", "../cpu", "no target '../cpu'"),
    ("features", 3, "not what was written"), ("signature", [], "not what was written"),
    ("structures", 3, "not what was written"), ("code", {}, "not what was written")])
def test_another_fact(file: Path, fact: str, value: object, message: str) -> None:
    rewrite_header(file, lambda header: header["facts"].update({fact: value}))
    assert message in refusal(file)


@pytest.mark.parametrize(("name", "value"), [
    ("entry", -1), ("entry", 1 << 40), ("slots", {"malloc": -8}), ("slots", {"malloc": 1 << 40}),
    ("slots", {"no_such_function": 8})])
def test_code_that_refers_outside_itself(file: Path, name: str, value: object) -> None:
    rewrite_header(file, lambda header: header["facts"]["code"].update({name: value}))
    refusal(file)


@pytest.mark.parametrize("places", [[[0, 1 << 50, 0]], [[-5, 3, 0]], [], [[0]], "x"])
def test_blobs_that_lie_elsewhere(file: Path, places: object) -> None:
    rewrite_header(file, lambda header: header.update(blobs=places))
    refusal(file)


def test_deep_headers_are_refused(file: Path) -> None:
    deep = "(" * 50_000 + "n" + ")" * 50_000
    rewrite_header(file, lambda h: h["facts"]["signature"]["input_types"][0][2].append(deep))
    refusal(file)


def test_matrix_registers_that_the_system_does_not_permit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "permits_matrices", lambda: False)
    monkeypatch.setattr(stored, "instruction_sets", lambda: frozenset(("amx_tile", "avx2")))
    rewrite_header(file, lambda header: header["facts"].update(needs=["amx_tile"]))
    assert "this processor lacks: amx_tile" in refusal(file)


def test_a_named_feature_set_is_all_that_is_needed(tmp_path: Path) -> None:
    compiled(LINEAR, features="baseline").save(tmp_path / "program")
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(stored, "instruction_sets", lambda: stored.NAMED_SETS["baseline"])
        loaded = compiler.load(tmp_path / "program")
        changed.setattr(stored, "instruction_sets", lambda: frozenset[str]())  # nobody knows
        assert "lacks" in refusal(tmp_path / "program")
    np.testing.assert_allclose(loaded(X)[0], compiled(LINEAR)(X)[0], rtol=1e-5)


def test_the_convention_follows_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    known = stored.convention()
    for name in stored._AGREED:  # pyright: ignore[reportPrivateUsage]
        assert (Path(stored.__file__).parent / name).exists(), name
    monkeypatch.setattr(stored, "_AGREED", ("runtime",))
    assert stored.convention() != known


# ---------------------------------------------------------------------- other users
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_to(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert "other users can write to it" in refusal(file)


def test_a_file_of_somebody_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert "it belongs to another user" in refusal(file)


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none")
    assert "it is not a file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a file" in refusal(tmp_path / "pipe")


@pytest.mark.parametrize(("words", "message"), [
    (("a\0b",), "characters that no path has"), ((None,), "None is not a path")])
def test_hostile_paths(words: tuple[Any], message: str) -> None:
    with pytest.raises(compiler.StrataError, match=message):
        compiler.load(*words)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_hostile_threads(file: Path, threads: Any) -> None:
    with pytest.raises(compiler.StrataError, match="threads is"):
        compiler.load(file, threads=threads)


def test_a_machine_that_hides_its_features_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "stored_code", lambda target: stored)  # type: ignore[misc]
    monkeypatch.setattr(stored, "instruction_sets", lambda: frozenset[str]())
    with pytest.raises(compiler.StrataError, match="features are not known"):
        compiled(LINEAR).save("program")
