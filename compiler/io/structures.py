"""What is not a C-contiguous tensor at a model's boundary, as tensors: lists, None, strings,
tensors whose memory has another order, and complex numbers.

    items 3     [x, y, z]     y[0], y[1], y[2]
    run         [x, y, ...]   y.data: all elements one after another; y.shapes: a row of sizes each
    optional F  None or F     y.present, then the tensors of F
    texts [..]  strings       y: the place of each in the table, which follows as JSON
    order 0,2,1 a tensor      y: its dims in the order of its memory, from the outermost
    complex     a tensor      y: reals [..., 2], real and imaginary parts

A module lists its structures in the attribute `strata.structures`: name -> one of these forms.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from dialects.strata.array_type import ArrayType
    from dialects.strata.types import Array

ATTRIBUTE = "strata.structures"
ORDER, COMPLEX = "order", "complex"


def structures_of(module: ModuleOp) -> dict[str, str]:
    """The inputs and outputs that are not tensors, with their structure."""
    from xdsl.dialects.builtin import DictionaryAttr, StringAttr

    found = module.attributes.get(ATTRIBUTE)
    if not isinstance(found, DictionaryAttr):
        return {}
    return {k: v.data for k, v in found.data.items() if isinstance(v, StringAttr)}


def own_names(names: Sequence[str], structures: Mapping[str, str]) -> list[str]:
    """The model's own names, recovered from those of the tensors, in order."""
    return list(dict.fromkeys(_own_name(name, structures) for name in names))


def _own_name(name: str, structures: Mapping[str, str]) -> str:
    if name in structures:
        return name
    base = name[:name.rindex("[")] if name.endswith("]") else name.rpartition(".")[0]
    return base if base in structures else name


def texts_of(table: Iterable[str]) -> str:
    """The structure of tensors of strings, which are indices into a table."""
    return f"texts {json.dumps(list(table))}"


def order_text(order: Sequence[int]) -> str:
    """The structure of a tensor whose memory has this order of dims."""
    return f"{ORDER} {','.join(map(str, order))}"


def orders_of(structures: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The orders of tensors' memory, by name."""
    found = (name_and_text for name_and_text in structures.items()
             if name_and_text[1].startswith(ORDER))
    return {name: _order(text.partition(" ")[2]) for name, text in found}


def _order(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def permuted(value: Any, order: Sequence[int] | None) -> Any:
    """A view of an array or tensor with permuted dims; the value itself if its rank differs."""
    if order is None or getattr(value, "ndim", None) != len(order):
        return value
    return value.permute(order) if hasattr(value, "permute") else value.transpose(order)


def gather(
    names: Sequence[str], arrays: Mapping[str, Array], structures: Mapping[str, str],
    strings: Sequence[str] = (),
) -> dict[str, Any]:
    """The values of a model's own names, assembled from tensors.

    `strings`: the strings in the inputs that are not in the model's table, as collected by
    `spread`.
    """
    return {name: _gathered(name, arrays, structures.get(name, "tensor"), strings)
            for name in names}


def _gathered(
    name: str, arrays: Mapping[str, Array], structure: str, strings: Sequence[str] = ()
) -> Any:
    kind, _, rest = structure.partition(" ")
    if kind == "texts":
        table = [*json.loads(rest), *strings]
        found = np.empty(arrays[name].shape, object)
        found.reshape(-1)[:] = [table[k] if 0 <= k < len(table) else ""
                                for k in arrays[name].reshape(-1)]
        return found
    if kind == "items":
        return [arrays[f"{name}[{k}]"] for k in range(int(rest))]
    if kind == "run":
        return _cut(arrays[f"{name}.data"], arrays[f"{name}.shapes"])
    if kind == "optional":
        there = bool(arrays[f"{name}.present"])
        return _gathered(name, arrays, rest, strings) if there and rest else None
    if kind == ORDER:
        return arrays[name].transpose(inverse(_order(rest)))
    if kind == COMPLEX:
        return of_parts(arrays[name])
    return arrays[name]


def _cut(data: Array, shapes: Array) -> list[Array]:
    ends = np.cumsum(np.prod(shapes, axis=1, dtype=np.int64))
    parts = np.split(data, ends[:-1]) if len(shapes) else []
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def spread(
    values: Mapping[str, Any], structures: Mapping[str, str], types: Mapping[str, ArrayType],
    strings: list[str] | None = None,
) -> dict[str, Array]:
    """The tensors that represent the values of a model's own names.

    `types` are those of the tensors. Strings that are not in the model's table are appended to
    `strings`, the list of this call; their indices follow those of the table.
    """
    found: dict[str, Array] = {}
    strings = [] if strings is None else strings
    for name, value in values.items():
        if structures.get(name, "").startswith("texts "):
            found[name] = _places(np.asarray(value), structures[name].partition(" ")[2], strings)
            continue
        found |= _spread(name, value, structures.get(name, "tensor"), types)
    return found


def _places(texts: Array, table: str, strings: list[str]) -> Array:
    places = {text: k for k, text in enumerate([*json.loads(table), *strings])}
    found = np.empty(texts.shape, np.int64)
    for k, text in enumerate(texts.reshape(-1)):
        word = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        if word not in places:
            places[word] = len(places)
            strings.append(word)
        found.reshape(-1)[k] = places[word]
    return found


def _spread(
    name: str, value: Any, structure: str, types: Mapping[str, ArrayType]
) -> dict[str, Array]:
    kind, _, rest = structure.partition(" ")
    if kind == "run":
        rank = types[f"{name}.shapes"].shape[1].constant or 0
        parts = [np.asarray(v) for v in value or ()]
        dtype = types[f"{name}.data"].dtype
        shapes = np.array([p.shape for p in parts], np.int64).reshape(len(parts), rank)
        return {f"{name}.data": np.concatenate([np.zeros(0, dtype), *(p.ravel() for p in parts)]),
                f"{name}.shapes": shapes}
    if kind == "optional":
        inner = _spread(name, value, rest, types) if rest else {}
        return {f"{name}.present": np.array(value is not None), **inner}
    if kind == ORDER:
        order, array = _order(rest), np.asarray(value)
        return {name: array.transpose(order) if array.ndim == len(order) else array}
    if kind == COMPLEX:
        return {name: in_parts(np.asarray(value), types[name])}
    if value is None:
        return {name: np.zeros([0] * types[name].rank, types[name].dtype)}
    return {name: np.asarray(value)}


def complex_names(structures: Mapping[str, str]) -> frozenset[str]:
    """The inputs and outputs that are complex, if no other has a structure."""
    return frozenset(structures) if set(structures.values()) == {COMPLEX} else frozenset()


def in_parts(value: Any, type_: ArrayType) -> Any:
    """Complex numbers of NumPy or torch as reals [..., 2]. Reals of that shape are taken as they
    are."""
    if hasattr(value, "resolve_conj"):
        view = importlib.import_module("torch").view_as_real
        return view(value.resolve_conj()) if value.is_complex() else value
    if value.dtype.kind != "c" and value.ndim == type_.rank:
        return value
    whole = np.ascontiguousarray(value, np.result_type(type_.dtype, np.complex64))
    return whole.view(type_.dtype).reshape(*value.shape, 2)


def of_parts(value: Any) -> Any:
    """The reverse."""
    if hasattr(value, "resolve_conj"):
        return importlib.import_module("torch").view_as_complex(value)
    parts = np.ascontiguousarray(value)
    return parts.view(np.result_type(parts.dtype, np.complex64)).reshape(parts.shape[:-1])
