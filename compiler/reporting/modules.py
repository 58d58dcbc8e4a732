"""The nodes of a model, folded by module: `encoder/layer.3/attention/matmul` lies in three.

A folded tree is a number, of a node, or a pair of a label and its members. A module with a single
member is joined with it. A module of more than MOST members, such as a model whose names say
nothing of modules, is cut into consecutive runs, so that no step of opening the tree shows more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.explaining.scopes import modules_around
from compiler.frontend.origins import ModelNode

MOST = 40
"""The largest number of members of a module."""

Tree = int | tuple[str, list["Tree"]]


@dataclass
class _Module:
    label: str
    inner: dict[str, _Module] = field(default_factory=dict[str, "_Module"])
    members: list[_Module | int] = field(default_factory=list["_Module | int"])

    def inside(self, name: str) -> _Module:
        if name not in self.inner:
            self.inner[name] = _Module(name)
            self.members.append(self.inner[name])
        return self.inner[name]


def folded(nodes: Sequence[ModelNode], numbers: Sequence[int]) -> list[Tree]:
    """The members of the outermost module. `numbers`: those of the nodes to fold, in order."""
    root = _Module("")
    for number in numbers:
        module = root
        for name in modules_around(nodes[number]):
            module = module.inside(name)
        module.members.append(number)
    return _members(root, [n.name for n in nodes])


def _members(module: _Module, names: Sequence[str]) -> list[Tree]:
    found = [m if isinstance(m, int) else _tree(m, names) for m in module.members]
    while len(found) > MOST:
        size = max(-(-len(found) // MOST), 2)
        found = [_run(found[k:k + size], names) for k in range(0, len(found), size)]
    return found


def _tree(module: _Module, names: Sequence[str]) -> Tree:
    members = _members(module, names)
    if len(members) == 1:
        [only] = members
        return only if isinstance(only, int) else (f"{module.label}.{only[0]}", only[1])
    return module.label, members


def _run(members: list[Tree], names: Sequence[str]) -> Tree:
    """Consecutive members as one, named by its first and last."""
    if len(members) == 1:
        return members[0]
    first, last = (_label(m, names) for m in (members[0], members[-1]))
    return f"{first} … {last}", members


def _label(tree: Tree, names: Sequence[str]) -> str:
    """A short name: without the modules around it, and of a run its first or last part."""
    return names[tree].rpartition("/")[2] or names[tree] if isinstance(tree, int) else (
        tree[0].partition(" … ")[0])
