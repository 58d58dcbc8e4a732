"""From which nodes of the model the lines of target code come: comments that say so, and back.

    vmovups %ymm1, (%rsi)      .loc 1 7 0  # from conv, relu        assembly of the CPU
    x = tl.load(x + r16)  # from conv                               Triton
    .loc 1 13 24  // from conv                                      PTX
    /*0090*/  LDG.E.128 R8, desc[UR4][R2.64] ;  // from conv        SASS
    %v = fadd float %a, %b, !dbg !20                                LLVM, whose metadata name nodes

A comment counts for its line and those that follow, up to the next one; a function or kernel starts
with none but its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from targets.naming import one_line

COMMENT = re.compile(r"(?:^|\s)(?:#|//|;) from (.*)$")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(.*?)"(?:\s+"(.*)")?\s*$')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+\d+\s+(\d+))?")
_SASS_PLACE = re.compile(r'^\s*//## File ".*?", line (\d+)( inlined at )?')
_SASS_KEPT = re.compile(r"^\s*\.type\s+[A-Za-z]|^(?!\.text)\S+:$")
_UNWINDING = re.compile(r"^\s*\.cfi_|^\.Ltmp\d+:$")
_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!(DI\w+)\((.*)\)$")
_MARKED = re.compile(r", !dbg !(\d+)$")


def comment(names: Sequence[str], sign: str = "#") -> str:
    """The comment for a line's nodes; empty without any."""
    return f"  {sign} from {one_line(names)}" if names else ""


def once(lines: Sequence[str]) -> list[str]:
    """The lines without comments that say what an earlier one says already."""
    found, now = list[str](), ""
    for line in lines:
        told = COMMENT.search(line)
        if told and told[1] == now and not line.startswith("#"):
            line = line[:told.start()].rstrip()
        now = told[1] if told else now
        found.append(line)
    return found


def without_comments(text: str) -> str:
    """Triton source without what only readers need; lines keep their numbers, but for whole lines
    of comments."""
    text = re.sub(r"^# .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"  # from .*$", "", text, flags=re.MULTILINE)


def annotated_assembly(text: str) -> str:
    """Assembly of the CPU in which `.loc` names nodes, without directives for unwinding."""
    files, lines = dict[str, str](), list[str]()
    for line in text.splitlines():
        if _UNWINDING.match(line):
            continue
        if file := _FILE.match(line):
            files[file[1]] = _joined(file[2], file[3])
        place = _LOC.match(line)
        lines.append(line + comment([files[place[1]]]) if place and files.get(place[1]) else line)
    return "\n".join([*lines, ""])


def _joined(folder: str, name: str | None) -> str:
    """A file's name, which LLVM divides at its last slash."""
    if name is None:
        return folder
    return folder + name if folder.endswith("/") else f"{folder}/{name}"


def annotated_ptx(text: str, source: str, name: str) -> str:
    """PTX in which `.loc` names nodes, as the lines of its Triton source do."""
    nodes, lines = _Lines(source, name, text), list[str]()
    for line in text.splitlines():
        place = _LOC.match(line)
        if place:
            line = line.partition("//")[0].rstrip() + nodes.comment(int(place[3] or place[2]))
        lines.append(line)
    return "\n".join([*lines, ""])


def annotated_sass(text: str, ptx: str, source: str, name: str) -> str:
    """SASS whose instructions name nodes, as the lines of its Triton source do; few directives.

    An instruction of an inlined function belongs to the line that calls it, the last of its places.
    """
    nodes, lines, told = _Lines(source, name, ptx), list[str](), ""
    for line in filter(str.strip, text.splitlines()):
        place = _SASS_PLACE.match(line)
        if place:
            told = told if place[2] else nodes.comment(int(place[1]))
        elif line.lstrip().startswith("/*"):
            lines.append(line.rstrip() + told)
        elif _SASS_KEPT.match(line):
            lines.append(line)
    return "\n".join([*once(lines), ""])


class _Lines:
    """The nodes of a kernel's lines in Triton, by the numbers that lines had in compilation."""

    def __init__(self, source: str, name: str, ptx: str) -> None:
        self.nodes = line_nodes(source)
        head = next((k for k, line in enumerate(source.splitlines(), 1)
                     if line.startswith(f"def {name}(")), 0)
        first = next(filter(None, map(_LOC.match, ptx.splitlines())), None)  # that of the head
        self.shift = head - int(first[3] or first[2]) if first else 0

    def comment(self, number: int) -> str:
        at = number + self.shift - 1
        named = 0 <= at < len(self.nodes) and self.nodes[at]
        return comment([self.nodes[at]], "//") if named else ""


# ---------------------------------------------------------------------- back
_START = re.compile(r"^(?:@\w+\.jit|def |define |\s*\.(?:type|visible|globl|section|text)\b)")
"""Where another function begins."""
_HEAD = re.compile(r"^(?:#|;|//) from (.*)$")
"""A comment on the function that follows."""
_OTHER = re.compile(r"^(?:@\S+ = |!|#|;|//|$)")
"""Constants, metadata and comments, which do nothing."""


def line_nodes(text: str) -> list[str]:
    """For each line of target code the nodes that it names, separated by commas, or nothing."""
    marks, found, now, waiting = _llvm_places(text), list[str](), "", ""
    for line in text.splitlines():
        head, told, marked = _HEAD.match(line), COMMENT.search(line), _MARKED.search(line)
        if head:
            now, waiting = "", head[1]
        elif _START.match(line):
            now, waiting = (now, waiting) if line.startswith("def ") and now else (waiting, "")
        now = told[1] if told and not head else now
        found.append(marks.get(marked[1], "") if marked else "" if _OTHER.match(line) else now)
    return found


def is_code(line: str) -> bool:
    """Whether a line of target code computes: no comment, label, directive, brace or head."""
    plain = line.strip()
    return bool(plain) and not plain.endswith((":", "{")) and not plain.startswith((
        ";", "#", "//", ".", "@", "}", "{", ")", "(", "declare", "import"))


def _llvm_places(text: str) -> Mapping[str, str]:
    """The nodes of each `!dbg` location of a text of LLVM."""
    parts = {m[1]: (m[2], m[3]) for line in text.splitlines() if (m := _METADATA.match(line))}
    found: dict[str, str] = {}
    for number, (kind, content) in parts.items():
        if kind == "DILocation":
            scope = re.search(r"scope: !(\d+)", content)
            file = scope and re.search(r"file: !(\d+)", parts.get(scope[1], ("", ""))[1])
            name = file and re.search(r'filename: "([^"]*)"', parts.get(file[1], ("", ""))[1])
            found[number] = _plain(name[1]) if name else ""
    return found


def _plain(text: str) -> str:
    """The text of a string of LLVM."""
    raw = re.sub(rb"\\([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), text.encode())
    return raw.decode(errors="replace")
