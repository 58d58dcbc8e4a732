"""From which nodes of the model the lines of target code come: comments that say so, and back.

    vmovups %ymm1, (%rsi)      .loc 1 7 0  # from conv, relu        assembly of the CPU
    x = tl.load(x + r16)  # from conv                               Triton
    .loc 1 13 24  // from conv                                      PTX
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
    nodes, lines = line_nodes(source), list[str]()
    head = next((k for k, line in enumerate(source.splitlines(), 1)
                 if line.startswith(f"def {name}(")), 0)
    shift: int | None = None
    for line in text.splitlines():
        place = _LOC.match(line)
        if place:
            number = int(place[3] or place[2])
            shift = head - number if shift is None else shift  # the first place is the head's
            at = number + shift - 1
            line = line.partition("//")[0].rstrip()
            line += comment([nodes[at]], "//") if 0 <= at < len(nodes) and nodes[at] else ""
        lines.append(line)
    return "\n".join([*lines, ""])


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
