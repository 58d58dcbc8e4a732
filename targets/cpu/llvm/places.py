"""Where code comes from, as LLVM's debug metadata: nodes of the model, and lines of a kernel.

An instruction with `!dbg !20` belongs to an operation of its kernel: the location's line is that of
the operation in the kernel's text at block level, and its file is named after the model's nodes.
So the assembly has a `.loc` for it, and debuggers and profilers show the nodes. Instructions that
belong to no operation, such as those of the loop over programs, name all nodes of the kernel. So do
those that LLVM adds: the prologue, spills, and what stands for several operations.
"""

from __future__ import annotations

from collections.abc import Sequence

_UNIT, _FLAGS, _FILE, _FIRST = 10, 11, 12, 13


class Places:
    """The metadata of a module. Numbers below 10 are left to others."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers: dict[str, int] = {}

    def function(self, name: str, nodes: Sequence[str]) -> int:
        """The number of a function's description. `nodes` are those of what LLVM adds to it, such
        as its prologue."""
        file = self._file(nodes) if nodes else _FILE
        return self._number(
            f'distinct !DISubprogram(name: "{_escaped(name)}", scope: !{_FILE}, file: !{file}, '
            f"line: 1, unit: !{_UNIT}, spFlags: DISPFlagDefinition | DISPFlagOptimized)")

    def place(self, function: int, nodes: Sequence[str], line: int) -> int:
        """The number of a location in a function: the nodes of the model, and a line."""
        file = self._file(nodes)
        scope = self._number(
            f"!DILexicalBlockFile(scope: !{function}, file: !{file}, discriminator: 0)")
        return self._number(f"!DILocation(line: {line}, scope: !{scope})")

    def _file(self, nodes: Sequence[str]) -> int:
        return self._number(f'!DIFile(filename: "{_escaped(", ".join(nodes))}", directory: "")')

    def _number(self, content: str) -> int:
        if content not in self._numbers:
            self._numbers[content] = _FIRST + len(self._numbers)
            self._lines.append(f"!{self._numbers[content]} = {content}")
        return self._numbers[content]

    def texts(self) -> dict[str, str]:
        """The lines at the module's end, by their names."""
        unit = (f"distinct !DICompileUnit(language: DW_LANG_C, file: !{_FILE}, producer: "
                '"Strata", isOptimized: true, runtimeVersion: 0, '
                "emissionKind: DebugDirectivesOnly)")
        lines = [f"!llvm.dbg.cu = !{{!{_UNIT}}}", f"!llvm.module.flags = !{{!{_FLAGS}}}",
                 f"!{_UNIT} = {unit}", f'!{_FLAGS} = !{{i32 2, !"Debug Info Version", i32 3}}',
                 f'!{_FILE} = !DIFile(filename: "model", directory: "")', *self._lines]
        return {line.partition(" = ")[0]: line for line in lines}


def _escaped(text: str) -> str:
    """Text inside a string of LLVM."""
    plain = (c for c in text.encode())
    return "".join(chr(c) if 32 <= c < 127 and chr(c) not in '"\\' else f"\\{c:02X}" for c in plain)
