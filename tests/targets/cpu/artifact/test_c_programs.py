"""Models as libraries, used by programs in C: they compute what Strata computes, and refuse what
does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import compiler
from targets.cpu.machine import features_here
from tests import processes
from tests.programs.test_saved_programs import LOOPED
from tests.targets.cpu.artifact.shipped import (
    build,
    needs_sanitizers,
    needs_tools,
    output_of,
    ship,
)

pytestmark = needs_tools
HERE = Path(__file__).parent
MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[n, 8] x) => (float[n, 4] y)
<float[8, 16] v = {FIRST}, float[16, 4] w = {SECOND}> {
    a = MatMul(x, v)  b = Relu(a)  c = MatMul(b, w)  y = Softmax(c)
}
""".replace("FIRST", ", ".join(f"{k % 7 - 3}.25" for k in range(128))).replace(
    "SECOND", ", ".join(f"{k % 5 - 2}.5" for k in range(64)))
STATIC = MLP.replace("[n, ", "[3, ")


def made_up(*shape: int) -> np.ndarray:
    """The numbers that the example makes up."""
    count = int(np.prod(shape))
    return (np.arange(count) % 7 / 7 - 0.4).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(("text", "rows"), [(STATIC, 3), (MLP, 2), (MLP, 5)])
@pytest.mark.parametrize("suffix", [".so", ".a", ".o"])
def test_the_example_runs_each_form(
    tmp_path: Path, text: str, rows: int, suffix: str
) -> None:
    library = ship(onnx.parser.parse_model(text), tmp_path / f"lib{suffix}", "mlp")
    build([tmp_path / "mlp_main.c", library], tmp_path / "main")
    printed = output_of(tmp_path / "main", *([str(rows)] if text is MLP else []))
    [y] = compiler.compile(onnx.parser.parse_model(text))(made_up(rows, 8))
    assert printed == f"y: {y.size} elements, sum {y.astype(np.float64).sum():.9g}\n"


SIZED = """
<ir_version: 8, opset_import: ["" : 17]>
sevenths (float[m] x, float[k] v, float[j] w) => (float[n] y, float[i] d)
<int64[2] sevens = {-1, 7}, int64[1] flat = {-1}> {
    a = Reshape(x, sevens)  b = Reshape(a, flat)  y = Add(b, v)  z = Concat<axis = 0>(w, w)
    c = Add(z, v)  d = ReduceSum(c)
}
"""
"""m is a multiple of 7, and the code is for the same k, which is twice j where it is not 1."""


@pytest.mark.parametrize("sanitized", [False, pytest.param(True, marks=needs_sanitizers)])
def test_the_example_takes_sizes_for_which_the_code_is(tmp_path: Path, sanitized: bool) -> None:
    """And says what is wrong with others, without a leak."""
    folder = ship(onnx.parser.parse_model(SIZED), tmp_path / "model", "model")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if sanitized else []
    build([folder / "main.c", folder / "model.a"], tmp_path / "main", *flags)
    assert output_of(tmp_path / "main").startswith("y: ")
    done = processes.run([tmp_path / "main", "14", "1", "7"], text=True, capture_output=True,
                         limit=60)
    assert done.returncode == 1
    assert done.stderr.startswith("the sizes ") and done.stderr.count("\n") == 1


def test_a_folder_has_all_pieces(tmp_path: Path) -> None:
    folder = ship(onnx.parser.parse_model(MLP), tmp_path / "mlp", "mlp")
    assert {"mlp.h", "mlp.c", "mlp.so", "mlp.a", "main.c", "mlp_kernels.o", "Makefile"} <= {
        f.name for f in folder.iterdir()}
    build([folder / "main.c", folder / "mlp.a"], tmp_path / "main")
    assert output_of(tmp_path / "main", "4").startswith("y: 16 elements")


# ---------------------------------------------------------------------- what programs may do
def program(folder: Path, source: str, *models: Path, sanitized: bool = False) -> Path:
    """A program of this folder with models that were compiled to folders. `sanitized`: what runs
    around the compiled code is compiled again, so that sanitizers watch it, too."""
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if sanitized else []
    ends = (".c", "_kernels.o", "_constants.S") if sanitized else (".a",)
    pieces = [model / f"{model.name}{end}" for model in models for end in ends]
    build([HERE / source, *pieces], folder / "program", *flags, *(f"-I{m}" for m in models),
          strict=not sanitized)
    return folder / "program"


@pytest.mark.parametrize("sanitized", [False, pytest.param(True, marks=needs_sanitizers)])
def test_what_does_not_fit_is_refused(tmp_path: Path, sanitized: bool) -> None:
    model = ship(onnx.parser.parse_model(MLP), tmp_path / "mlp", "mlp")
    assert output_of(program(tmp_path, "errors.c", model, sanitized=sanitized)) == "0 failures\n"


def test_two_models_and_many_states_do_not_see_each_other(tmp_path: Path) -> None:
    first = ship(onnx.parser.parse_model(MLP), tmp_path / "first", "first")
    second = ship(onnx.parser.parse_model(MLP.replace("Relu", "Tanh")), tmp_path / "second",
                  "second")
    assert output_of(program(tmp_path, "states.c", first, second)) == "0 threads were wrong\n"


def test_a_library_chooses_among_variants(tmp_path: Path) -> None:
    sets = [*(s for s in ("baseline", "avx2", "amx") if s in features_here() or s == "amx")]
    folder = ship(onnx.parser.parse_model(MLP), tmp_path / "mlp", "mlp", variants=sets)
    build([folder / "main.c", folder / "mlp.a"], tmp_path / "main")
    one = ship(onnx.parser.parse_model(MLP), tmp_path / "one.a", "mlp", features=sets[-2])
    build([tmp_path / "mlp_main.c", one], tmp_path / "single")
    if "amx" not in features_here():
        assert output_of(tmp_path / "main", "9") == output_of(tmp_path / "single", "9")
    assert output_of(program(tmp_path, "errors.c", folder)) == "0 failures\n"
    loaded, x = compiler.load(folder / "mlp.so"), made_up(5, 8)
    np.testing.assert_allclose(loaded(x)[0], compiler.compile(
        onnx.parser.parse_model(MLP))(x)[0], rtol=1e-5)


def test_a_folder_makes_its_libraries_again(tmp_path: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("there is no make")
    for name, sets in (("one", ()), ("two", ("baseline", "avx2"))):
        folder = ship(onnx.parser.parse_model(MLP), tmp_path / name, name, variants=sets)
        wanted = (folder / f"{name}.a").read_bytes()
        (folder / f"{name}.a").unlink()
        done = processes.run(["make", "-C", folder, "main", f"{name}.so"], text=True,
                             capture_output=True, limit=120)
        assert done.returncode == 0, done.stderr
        assert output_of(folder / "main", "3").startswith("y: 12 elements")
        assert len(wanted) > 1000


def test_a_run_is_cancelled(tmp_path: Path) -> None:
    model = ship(onnx.parser.parse_model(LOOPED), tmp_path / "looped", "looped")
    first, second = output_of(program(tmp_path, "cancel.c", model)).splitlines()
    assert first == "15 0 8 16"
    assert second.startswith("15 2: the call was cancelled in the loop at node")


def test_a_processor_that_lacks_instructions_is_refused(tmp_path: Path) -> None:
    if "amx" in features_here():
        pytest.skip("this processor has all instructions that a feature set names")
    library = ship(onnx.parser.parse_model(STATIC), tmp_path / "mlp.a", "mlp", features="amx")
    build([tmp_path / "mlp_main.c", library], tmp_path / "main")
    done = processes.run([tmp_path / "main"], text=True, capture_output=True, limit=60)
    assert done.returncode == 1
    assert done.stderr == "the processor lacks instructions that the model was compiled for\n"


# ---------------------------------------------------------------------- names and types
HOSTILE = ("class", "x.1", "1", "é", "%d", 'a"b\\', "??/", "INPUTS", "int", "*/ int y; /*", "_",
           "k", "linux", "sum", "state", "x_1", "a" * 300, "x\ty", "argc", "status", "%", "a b",
           "options")
TYPES = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20, 21, 22, 23, 24)
"""All of ONNX's but for strings and complex numbers."""


def hostile_model() -> onnx.ModelProto:
    """Each type, and names and sizes that C and printf would misunderstand."""
    h = onnx.helper
    pairs = list(zip(HOSTILE, (*TYPES, 1, 1), strict=True))
    nodes = [h.make_node("Identity" if type_ not in (1, 11) else "Neg", [name], [f"{name}?"])
             for name, type_ in pairs]
    shapes = {name: [f"{name}%s", 3] for name in HOSTILE}
    inputs = [h.make_tensor_value_info(n, t, shapes[n]) for n, t in pairs]
    outputs = [h.make_tensor_value_info(f"{n}?", t, shapes[n]) for n, t in pairs]
    graph = h.make_graph(nodes, "hostile", inputs, outputs)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=11)


def test_any_name_and_any_type_can_be_shipped(tmp_path: Path) -> None:
    model = hostile_model()
    library = ship(model, tmp_path / "hostile.so", "hostile")
    build([tmp_path / "hostile_main.c", library], tmp_path / "main")
    assert output_of(tmp_path / "main").count("6 elements") == len(HOSTILE)
    loaded, exe = compiler.load(library), compiler.compile(model)
    assert loaded.input_types == exe.input_types
    inputs = list(exe.signature.random(0, {}).values())
    for found, wanted in zip(loaded(*inputs), exe(*inputs), strict=True):
        assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())


@pytest.mark.parametrize("text", [
    "none () => (float[2] y) <float[2] y = {1, 2}> {}",
    "same (float[n] x) => (float[n] y, float[n] z) { y = Identity(x)  z = Identity(x) }",
    "scalar (float x, int64 k) => (float y, float[2] z) <float[2] z = {3, 4}> "
    "{ f = Cast<to = 1>(k)  y = Mul(x, f) }",
    "empty (float[0, n] x) => (float[0, n] y, float[n] s) <int64[1] axis = {0}> "
    "{ y = Relu(x)  s = ReduceSum<keepdims = 0>(x, axis) }",
])
def test_models_of_unusual_ports(tmp_path: Path, text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    library = ship(model, tmp_path / "model.so")
    build([tmp_path / "model_main.c", library], tmp_path / "main")
    assert output_of(tmp_path / "main")
    loaded, exe = compiler.load(library), compiler.compile(model)
    inputs = list(exe.signature.random(0, {}).values())
    for found, wanted in zip(loaded(*inputs), exe(*inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


# ---------------------------------------------------------------------- where programs run
def test_a_static_program_needs_no_file_at_all(tmp_path: Path) -> None:
    library = ship(onnx.parser.parse_model(MLP), tmp_path / "mlp.a", "mlp")
    root = tmp_path / "root"
    root.mkdir()
    try:
        build([tmp_path / "mlp_main.c", library], root / "main", "-static")
    except AssertionError:
        pytest.skip("there is no static C library")
    alone = [shutil.which("chroot"), root, "/main"] if may_chroot(root) else [root / "main"]
    done = processes.run([*alone, "3"], text=True, capture_output=True, limit=60, env={})
    assert (done.returncode, done.stdout[:14]) == (0, "y: 12 elements"), done.stderr


def may_chroot(root: Path) -> bool:
    """Whether this user may run programs in another root folder."""
    return bool(shutil.which("chroot")) and processes.run(
        ["chroot", root, "/main"], capture_output=True, limit=60).returncode == 0


def test_constants_in_a_file_are_mapped_from_where_the_program_says(tmp_path: Path) -> None:
    weights = tmp_path / "mlp.weights"
    library = ship(onnx.parser.parse_model(MLP), tmp_path / "mlp.so", "mlp", weights=weights)
    build([tmp_path / "mlp_main.c", library], tmp_path / "main")
    for folder, status in ((tmp_path, 0), (tmp_path.parent, 1)):
        done = processes.run([tmp_path / "main"], cwd=folder, text=True, capture_output=True,
                             limit=60)
        assert done.returncode == status
    assert done.stderr == "the file of weights cannot be opened and mapped: mlp.weights\n"
    other = ship(onnx.parser.parse_model(MLP.replace("3.25", "3.5")), tmp_path / "other.so", "mlp",
                 weights=weights)
    for length in (None, 100, 5, 0):
        weights.write_bytes(weights.read_bytes()[:length])
        done = processes.run([tmp_path / "main"], cwd=tmp_path, text=True, capture_output=True,
                             limit=60)
        assert other.exists() and (done.returncode, done.stderr) == (
            1, "the file of weights is that of another model, or was cut short: mlp.weights\n")


def test_the_header_is_plain_in_c99_and_in_c_plus_plus(tmp_path: Path) -> None:
    ship(hostile_model(), tmp_path / "hostile.o", "hostile")
    ship(onnx.parser.parse_model(MLP), tmp_path / "mlp.o", "mlp")
    (tmp_path / "both.c").write_text('#include "mlp.h"\n#include "hostile.h"\n#include "mlp.h"\n')
    languages = [("c", "c99")] + [("c++", "c++11")] * bool(shutil.which("g++"))
    for language, standard in languages:
        done = processes.run(
            ["cc", "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic",
             "-fsyntax-only", tmp_path / "both.c"], text=True, capture_output=True, limit=60)
        assert done.returncode == 0, done.stderr
