"""The process in which candidates are compiled and run: `python -m compiler.reduction.probe`.

It reads a question per line, as JSON, and answers each with a line. It may die of one.

    {"do": "judge", "model": FILE, "inputs": FILE}     -> a verdict
    {"do": "blame", "model": FILE, "inputs": FILE}     -> {"pass": NAME}
    {"do": "record", "model": FILE, "inputs": FILE, "to": FILE}  -> {"names": N}, what each value is
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from compiler.reduction.options import question_of
from compiler.reduction.verdict import Question, blame, verdict_of


def main() -> None:
    question = question_of()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what models and libraries print
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line), question)) + "\n")
        answers.flush()


def _answer(asked: dict[str, Any], question: Question) -> dict[str, Any]:
    from compiler.io.array_files import read_npz

    model = Path(asked["model"])
    inputs = read_npz(Path(asked["inputs"])) if asked["inputs"] else {}
    if asked["do"] == "judge":
        return verdict_of(model, inputs, question).facts()
    if asked["do"] == "blame":
        return {"pass": blame(model, inputs, question)}
    from compiler.reduction.recording import record

    return {"names": record(model, inputs, question, Path(asked["to"]))}


if __name__ == "__main__":
    main()
