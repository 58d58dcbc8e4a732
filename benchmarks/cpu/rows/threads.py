"""Two threads over one, in wall time; peers beside. It says something on an idle machine only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import compiler
from compiler.measuring.contest import rounds_within, take_turns
from compiler.measuring.measure import request_of
from compiler.peers import load_peer
from rows import Figures, Goal, Measure, Setting, milliseconds
from rows.contests import OURS
from rows.models import model_and_inputs

TITLE = "two threads over one: time on one thread / time on two"
GOAL = Goal(1.7, 1.9)
MEAN = False
MODELS = ("resnet50", "bert_base")
PEERS = ("onnxruntime", "openvino")
BOTH = (1, 2)


def rows(setting: Setting) -> dict[str, Measure]:
    found = setting.zoo()
    return {name: partial(measure, name, found.get(name)) for name in MODELS}


def measure(name: str, entry: Mapping[str, Any] | None, setting: Setting) -> Figures:
    model, inputs = model_and_inputs(name, entry)
    runs: dict[str, Any] = {}
    for threads in BOTH:
        exe = compiler.compile(model, target="cpu", threads=threads)
        arrays = [inputs[n] for n in exe.input_names]
        runs[f"{OURS} {threads}"] = partial(exe.run, arrays)
        request = replace(request_of(exe, arrays, model, None), threads=threads)
        runs |= {f"{peer} {threads}": load_peer(peer, request) for peer in PEERS}
    times = take_turns(runs, rounds_within(runs, setting.seconds), max(BOTH))
    gains, texts = dict[str, float](), dict[str, str]()
    for who in (OURS, *PEERS):
        one, two = (times[f"{who} {threads}"].median_ms for threads in BOTH)
        gains[who] = one / two
        texts[who] = f"{milliseconds(one)} / {milliseconds(two)} = {gains[who]:.2f}"
    return Figures(texts.pop(OURS), texts, gains[OURS])
