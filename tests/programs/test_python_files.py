"""The file of Python beside a library: with NumPy, and without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import processes
from tests.programs.test_libraries import model_of
from tests.programs.test_saved_programs import LINEAR, SIZED
from tests.targets.cpu.artifact.shipped import needs_tools, ship

pytestmark = needs_tools


def test_the_file_of_python_needs_numpy_only(tmp_path: Path) -> None:
    path = ship(model_of(SIZED), tmp_path / "sized.so", "sized")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, sized_numpy
class Foreign:
    def __init__(self, array): self.array = array
    def __dlpack__(self, **more): return self.array.__dlpack__(**more)
    def __dlpack_device__(self): return self.array.__dlpack_device__()
model = sized_numpy.Model(threads=1)
for values, k in ([1, 0, 2, 0, 3, 4], 2), ([0, 0], 1):
    y, z = model(Foreign(np.array(values, np.float32)), k=np.array([k]))
    print(y.tolist(), z.tolist(), y.dtype)
for bad in [np.ones(3)], [], [np.ones((2, 2), np.float32), np.array([2])], [
        np.ones(6, np.float32), np.array([4])]:
    try:
        model(*bad)
    except ValueError as error:
        print(error)
model.close()
print(*sorted({"compiler", "xdsl", "targets"} & set(sys.modules)))
"""
    done = processes.run([sys.executable, "-c", code, tmp_path], cwd=tmp_path, text=True,
                         capture_output=True, limit=120)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["[[0, 2, 4, 5]] [[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]] int64",
                         "[[]] [[0.0, 0.0]] int64"], done.stderr
    assert len(lines) == 7 and "must have 1 dims" in lines[4] and "it needs n ==" in lines[5]
    assert lines[6] == "" and path.exists()


def run_alone(code: str, folder: Path) -> list[str]:
    """The lines that a process prints which finds modules in a folder and nothing of Strata."""
    head = "import sys\nsys.path.insert(0, sys.argv[1])\n"
    done = processes.run([sys.executable, "-c", head + code, folder], cwd=folder, text=True,
                         capture_output=True, limit=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_memory_needs_no_numpy(tmp_path: Path) -> None:
    """Inputs in memory that can be written or not, in order or not; outputs of sizes that only the
    run knows; outputs as inputs."""
    ship(model_of(SIZED), tmp_path / "sized.so", "sized")
    code = """
import array, ctypes
sys.modules["numpy"] = None  # an import of it fails
import sized_numpy
model = sized_numpy.Model(threads=1)
for values, k in ([1, 0, 2, 0, 3, 4], 2), ([0, 0], 1):
    x = array.array("f", values)
    apart = memoryview(array.array("f", [v for value in values for v in (value, 7)]))[::2]
    for given in x, memoryview(x), memoryview(x.tobytes()).cast("f"), apart:
        y, z = model(given, array.array("q", [k]))
        print(y.tolist(), z.tolist(), y.dtype, z.shape, z.view.format)
y, z = model((ctypes.c_float * 0)(), memoryview((ctypes.c_int64 * 1)(0)))
print(y.tolist(), z.shape, z.view.nbytes)
[y] = sized_numpy.Model(threads=1)(array.array("f", [1, 2]), k=array.array("q", [1]).tobytes())[:1]
print(y, len(y), y.tobytes() == y.view.tobytes())
for bad in b"abcd", array.array("d", [1.0]), memoryview(array.array("f", [1.0] * 6)).cast("B"):
    try:
        model(bad, array.array("q", [1]))
    except ValueError as error:
        print(error)
try:
    model(array.array("f", [1.0]), bytes(9))
except ValueError as error:
    print(error)
"""
    first = "[[0, 2, 4, 5]] [[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]] int64 (2, 3) f"
    second = "[[]] [[0.0, 0.0]] int64 (1, 2) f"
    wrong = "input 'x' must be float32 (f), of at most 16 dims; it is"
    assert run_alone(code, tmp_path) == [
        *[first] * 4, *[second] * 4, "[[]] (0, 0) 0",
        "Tensor(shape=(1, 2), dtype='int64') 1 True",
        f"{wrong} B, of 1", f"{wrong} d, of 1", f"{wrong} B, of 1",
        "input 'k' has 8 bytes, not 9"]


KINDS = '''<ir_version: 8, opset_import: ["" : 17]>
m (float[2, 3] x, float16[n] h, bool[n] b, bfloat16[n] f)
    => (float[2, 3] y, float16[n] g, bool[n] c, bfloat16[n] e) {
    y = Neg(x)
    g = Neg(h)
    c = Not(b)
    e = Neg(f)
}'''


def test_outputs_become_arrays_of_any_library(tmp_path: Path) -> None:
    """Bytes, DLPack in and out without NumPy, and then NumPy on request, all of the same memory."""
    ship(model_of(KINDS), tmp_path / "kinds.so", "kinds")
    code = """
import gc, struct
import kinds_numpy
class Foreign:
    def __init__(self, tensor): self.tensor = tensor
    def __dlpack__(self, **more): return self.tensor.__dlpack__(**more)
    def __dlpack_device__(self): return self.tensor.__dlpack_device__()
model = kinds_numpy.Model(threads=1)
bits = memoryview(struct.pack("3H", 0x3f80, 0, 0x4000)).cast("H")
outputs = model(struct.pack("6f", *range(6)), memoryview(struct.pack("3e", 1, 2, 3)).cast("H"),
                memoryview(bytes([0, 1, 2])).cast("?"), bits)
print([output.tolist() for output in outputs])
again = model(*map(Foreign, outputs[:3]), bits)
print([output.tolist() for output in again[:3]], len(kinds_numpy._LENT))
for bad in Foreign(outputs[1]), Foreign(outputs[3]):
    try:
        model(bad, *outputs[1:3], bits)
    except ValueError as error:
        print(error)
unused = again[0].__dlpack__()
print("numpy" in sys.modules, len(kinds_numpy._LENT))
del unused
import numpy as np
shared, lent, copy = (np.asarray(outputs[0]), np.from_dlpack(outputs[0]),
                      np.from_dlpack(outputs[0].__class__.numpy(outputs[0]).copy()))
shared[0, 0] = 9
print(outputs[0].tolist()[0][0], lent[0, 0], copy[0, 0], len(kinds_numpy._LENT))
print([np.asarray(output).dtype.name for output in outputs], outputs[1].numpy().tolist())
del lent
gc.collect()
print(len(kinds_numpy._LENT))
arrays = model(shared.T.copy().T, *outputs[1:3], bits)
print(type(arrays[0]).__name__, arrays[0].tolist(), arrays[1].tolist())
kept = np.from_dlpack(outputs[1])
"""
    assert run_alone(code, tmp_path) == [
        "[[[-0.0, -1.0, -2.0], [-3.0, -4.0, -5.0]], [-1.0, -2.0, -3.0], [True, False, False], "
        "[49024, 32768, 49152]]",
        "[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [1.0, 2.0, 3.0], [False, True, True]] 0",
        *(f"input 'x' must be float32, of at most 16 dims; it is of DLPack's kind {kind} with 16 "
          "bits, of 1" for kind in (2, 1)),
        "False 1", "9.0 9.0 -0.0 1",
        "['float32', 'float16', 'bool', 'uint16'] [-1.0, -2.0, -3.0]", "0",
        "ndarray [[-9.0, 1.0, 2.0], [3.0, 4.0, 5.0]] [1.0, 2.0, 3.0]"]


def test_arrays_of_pytorch_are_inputs_and_outputs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ship(model_of(KINDS), tmp_path / "kinds.so", "kinds")
    code = """
import torch
import kinds_numpy
model = kinds_numpy.Model(threads=1)
x, h = torch.arange(6.).reshape(3, 2).T, torch.arange(3).half()
b, f = torch.tensor([True, False, True]), torch.tensor([1, 2, -3]).bfloat16()
for given in x, x.contiguous():
    y, g, c, e = map(torch.from_dlpack, model(given, h, b, f))
    e = e.view(torch.bfloat16)
    print(*map(torch.equal, (y, g, c, e), (-x, -h, ~b, -f)))
"""
    assert run_alone(code, tmp_path) == ["True True True True"] * 2


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    """Of names of inputs, of closed models, of files that were cut short or damaged."""
    path = ship(model_of(SIZED), tmp_path / "sized.so", "sized")
    whole = path.read_bytes()
    third, end = len(whole) // 3, whole.rindex(b'{"strata_library"')
    for name, content in {
            "short": whole[: 2 * third], "tail": whole[: end - 8],
            "code": whole[:third] + b"\x77" + whole[third + 1:],
            "facts": whole[:-40] + b"\x77" + whole[-39:], "ended": whole[:-1],
            "longer": whole + bytes(9), "marked": whole[:-3] + b"\x77" + whole[-2:]}.items():
        (tmp_path / f"{name}.so").write_bytes(content)
    lines = run_alone("""
import array, sized_numpy
x, k = array.array("f", [1, 2]), array.array("q", [1])
model = sized_numpy.Model(threads=1, verify=True)
calls = {"x, k": lambda: model(x, k=k), "other": lambda: model(x, j=k),
         "twice": lambda: model(x, x=x), "more": lambda: model(x, k, k),
         **{name: lambda name=name: sized_numpy.Model(f"./{name}.so", verify=name[0] not in "st")
            for name in ("short", "tail", "code", "facts", "ended", "longer", "marked")},
         "close": model.close, "closed": lambda: model(x, k)}
for name, call in calls.items():
    try:
        call()
        print(name, "is right")
    except ValueError as error:
        print(name, error)
""", tmp_path)
    takes = "the model takes x, k, each once"
    assert lines == [
        "x, k is right", f"other {takes}", f"twice {takes}", f"more {takes}",
        "short ./short.so was cut short", "tail ./tail.so was cut short",
        *(f"{name} ./{name}.so is damaged: it is not what was written"
          for name in ("code", "facts")),
        *(f"{name} ./{name}.so does not end with checksums, so it cannot be verified: it was cut "
          "short, stripped, or linked again" for name in ("ended", "longer", "marked")),
        "close is right", "closed the model is closed"]


def test_other_libraries_are_refused(tmp_path: Path) -> None:
    """Another model's, those of this name with other inputs or outputs, another interface's."""
    ship(model_of(SIZED), tmp_path / "sized.so", "sized")
    ship(model_of(LINEAR), tmp_path / "linear.so", "linear")
    text = (tmp_path / "sized_numpy.py").read_text()
    (tmp_path / "older_numpy.py").write_text(text.replace('"strata_library": 1,', '"old": 1,'))
    for folder, changed in {"inputs": SIZED.replace("float[", "double["),
                            "outputs": SIZED.replace("found] y", "found] q").replace("y =", "q =")
                            }.items():
        (tmp_path / folder).mkdir()
        ship(model_of(changed), tmp_path / folder / "sized.so", "sized")
    lines = run_alone("""
import older_numpy, sized_numpy
for model, path in ((sized_numpy.Model, "./sized.so"), (sized_numpy.Model, "./linear.so"),
                    (sized_numpy.Model, "inputs/sized.so"),
                    (sized_numpy.Model, "outputs/sized.so"), (older_numpy.Model, "./sized.so")):
    try:
        model(path)
        print(path, "is right")
    except ValueError as error:
        print(error)
""", tmp_path)
    other = "than the library that came with sized_numpy.py; use the file beside it"
    assert lines == [
        "./sized.so is right", "./linear.so is not the library of sized",
        f"inputs/sized.so has other inputs {other}", f"outputs/sized.so has other outputs {other}",
        "./sized.so was made by a version of Strata with another interface"]
