"""The weight store: keys, what it keeps, and the memory of mapped files."""

from __future__ import annotations

import hashlib
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialects.graph import ConstantOp
from dialects.strata.mapped import release
from dialects.strata.types import Array, WeightAttr
from dialects.strata.weights import PIECE, WeightStore, aligned_zeros, content_key
from passes.rewrites.loop.triangles import triangle_of


def test_keys_tell_contents_types_and_shapes_apart() -> None:
    array = np.arange(12, dtype=np.float32)
    same = [array, array.copy(), np.arange(24, dtype=np.float32)[:12]]
    others = [array + 1, array.reshape(3, 4), array.view(np.int32)]
    assert len({content_key(a) for a in same}) == 1
    assert len({content_key(a) for a in (array, *others)}) == 4


def test_the_key_of_a_large_array_is_that_of_all_its_pieces() -> None:
    array = np.arange(PIECE // 2 + 5, dtype=np.int32)
    data = array.tobytes()
    pieces = [hashlib.sha256(data[k * PIECE: (k + 1) * PIECE]).digest() for k in range(3)]
    whole = hashlib.sha256(f"int32{array.shape}".encode() + b"".join(pieces))
    assert content_key(array) == whole.hexdigest()[:24]
    for place in (0, PIECE // 4, array.size - 1):
        changed = array.copy()
        changed[place] += 1
        assert content_key(changed) != content_key(array)


def test_a_store_forgets_what_it_is_not_told_to_keep() -> None:
    store = WeightStore()
    kept, dropped = (store.add(name, np.full(20, k)) for k, name in enumerate("ab"))
    store.keep_only({kept.key.data})  # type: ignore[attr-defined]
    assert (store.get(kept) == 0).all()
    with pytest.raises(KeyError, match="'b'"):
        store.get(dropped)


@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4)])
def test_new_arrays_are_aligned(shape: tuple[int, ...]) -> None:
    array = aligned_zeros(shape, np.dtype(np.float32))
    assert array.shape == shape and array.dtype == np.float32
    assert not array.any() and (not array.size or array.ctypes.data % 64 == 0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of a process's memory")
def test_released_arrays_leave_memory_and_stay_readable(tmp_path: Path) -> None:
    expected = np.arange(4 << 20, dtype=np.int32)
    expected.tofile(tmp_path / "weights")
    with (tmp_path / "weights").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    array = np.frombuffer(mapped, np.int32, (4 << 20) - 1, 4).reshape(-1)
    assert array.sum() == expected.sum()
    touched = _mapped_kilobytes()
    release(array)
    assert touched - _mapped_kilobytes() > 15 << 10
    assert (array == expected[1:]).all()


def _mapped_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))


def test_arrays_of_their_own_cannot_be_released() -> None:
    array = np.ones(1 << 20)
    release(array)
    release(array[::2])
    assert array.all()


def test_computed_arrays_are_found_by_their_computation(tmp_path: Path) -> None:
    """The same computation on the same weight runs once, and an archive keeps its result."""
    store, runs = WeightStore(), list[int]()
    source = store.add("w", np.arange(40, dtype=np.float32))
    other = store.add("v", np.arange(1, 41, dtype=np.float32))

    def doubled(array: Array) -> Array:
        runs.append(1)
        return array * 2

    keys = [store.derive("d", [w], text, doubled)[0].key
            for w, text in ((source, "twice"), (source, "twice"), (other, "twice"),
                            (source, "two times"))]
    assert len(runs) == 3 and len(set(keys)) == 3 and keys[0] == keys[1]
    store.save(tmp_path / "weights.npz")
    again = WeightStore.load(tmp_path / "weights.npz")
    assert {k: a.tolist() for k, a in again.arrays.items()} == {
        k: a.tolist() for k, a in store.arrays.items()}
    again.save(tmp_path / "again.npz")
    WeightStore.load(tmp_path / "again.npz")


def test_an_archive_with_another_computed_array_is_refused(tmp_path: Path) -> None:
    store = WeightStore()
    source = store.add("w", np.arange(40, dtype=np.float32))
    store.derive("d", [source], "twice", lambda array: array * 2)
    store.save(tmp_path / "weights.npz")
    with np.load(tmp_path / "weights.npz") as archive:
        changed = {name: archive[name] + ("|" in name[30:]) for name in archive.files}
    np.savez(tmp_path / "changed.npz", **changed)
    with pytest.raises(ValueError, match="other contents"):
        WeightStore.load(tmp_path / "changed.npz")


# ---------------------------------------------------------------------- parameters
def parameters(**arrays: Array) -> tuple[WeightStore, dict[str, WeightAttr]]:
    store = WeightStore()
    return store, {name: store.add_parameter(name, array) for name, array in arrays.items()}


def twice(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array * 2


def test_equal_parameters_are_apart() -> None:
    store, handles = parameters(a=np.zeros(3), b=np.zeros(3))
    assert handles["a"] != handles["b"]
    made = store.with_values({"b": np.ones(3)}, [h.key.data for h in handles.values()])
    assert made is not None
    assert made.contents(handles["a"]).sum() == 0
    assert made.contents(handles["b"]).sum() == 3


def test_other_values_compute_what_depends_on_them() -> None:
    store, handles = parameters(a=np.arange(3.0), b=np.arange(3.0) + 10)
    fixed, calls = store.add("c", np.full(20, 2.0)), list[str]()

    def computed(name: str, *sources: WeightAttr) -> WeightAttr:
        def compute(*arrays: Array) -> Array:
            calls.append(name)
            return np.add.reduce([a.sum() for a in arrays]) * np.ones(2)

        return store.derive(name, sources, name, compute)[0]

    left, right = computed("left", handles["a"]), computed("right", handles["b"], fixed)
    both, closed = computed("both", left, right), computed("closed", fixed)
    keys = [h.key.data for h in (both, right, closed)]
    store.forget(keys)
    assert store.is_open(both)
    assert not store.is_open(closed)
    calls.clear()
    made = store.with_values({"a": np.ones(3)}, keys)
    assert made is not None
    assert calls == ["left", "both"]
    assert made.contents(right) is store.contents(right)
    assert made.contents(both)[0] == 2 * 3 + 2 * (33 + 40)
    again = made.with_values({"a": np.zeros(3), "b": np.zeros(3)}, keys)
    assert again is not None
    assert again.contents(both)[0] == 2 * 40
    assert store.contents(both)[0] == 2 * 3 + 2 * (33 + 40)  # a's sum is 3 there, too


def test_code_that_read_a_parameter_is_for_its_values() -> None:
    store, handles = parameters(a=np.arange(3.0), b=np.arange(3.0))
    derived, _ = store.derive("d", [handles["a"]], "twice", lambda array: array * 2)
    keys = [derived.key.data, handles["b"].key.data]
    store.get(derived)
    assert store.read.keys() == {"a"}
    assert store.with_values({"b": np.ones(3)}, keys) is not None
    assert store.with_values({"a": np.arange(3.0)}, keys) is not None
    assert store.with_values({"a": np.ones(3)}, keys) is None


def test_code_for_finite_values_refuses_others() -> None:
    store, handles = parameters(a=np.ones(3), b=np.array([np.inf]))
    derived, _ = store.derive("d", [handles["a"]], "twice", twice)
    assert store.is_finite(derived)
    assert not store.is_finite(handles["b"])
    for bad in (np.inf, np.nan, 1e308):  # twice the last is infinite
        assert store.with_values({"a": np.full(3, bad)}, [derived.key.data]) is None
    assert store.with_values({"a": np.zeros(3), "b": np.zeros(1)}, [derived.key.data]) is not None


def test_a_saved_store_keeps_parameters_by_name(tmp_path: Path) -> None:
    store, handles = parameters(a=np.arange(3.0))
    store.save(tmp_path / "w.npz")
    assert (WeightStore.load(tmp_path / "w.npz").contents(handles["a"]) == np.arange(3.0)).all()


def test_a_triangle_is_read_and_other_values_are_not() -> None:
    """Rules that look for a form depend on the values only where they find it."""
    mask = np.triu(np.full((16, 16), -np.inf, np.float32), 1)
    store, other = WeightStore(), np.random.default_rng(0).random((16, 16), np.float32)
    for name, array in (("mask", mask), ("other", other)):
        constant = ConstantOp.parameter(name, array, store)
        assert (triangle_of(constant.result, store) is not None) == (name == "mask")
    assert store.read.keys() == {"mask"}


class Held:
    """A tensor on a device, whose contents nobody reads."""

    def __init__(self, array: Any):
        self.dtype, self.array = array.dtype, array

    def isfinite(self) -> Any:
        return np.isfinite(self.array)


class Unread(dict[str, Any]):
    """Values of which only some may be asked for."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        assert value is not None, f"{name} is read"
        return value


def test_values_on_a_device_are_only_read_to_compute_something() -> None:
    store = WeightStore()
    loaded = store.add_parameter("a", np.ones(3))
    source = store.add_parameter("b", np.ones(3))
    derived, _ = store.derive("twice", [source], "twice", lambda b: 2 * b)
    assert store.is_finite(loaded)
    keys = [loaded.key.data, derived.key.data]
    tensors = {name: Held(np.full(3, 4.0)) for name in ("a", "b")}
    made = store.with_values(Unread(a=None, b=np.full(3, 5.0)), keys, tensors)
    assert made is not None and made.residents == list(tensors.values())
    assert made.tensors == {loaded.key.data: tensors["a"], source.key.data: tensors["b"]}
    assert np.array_equal(made.arrays[derived.key.data], np.full(3, 10.0))
    tensors["a"] = Held(np.array([1.0, np.inf, 2.0]))
    assert made.with_values(Unread(a=None, b=np.ones(3)), keys, tensors) is None
