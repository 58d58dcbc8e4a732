"""What is suggested for a name that there is not."""

from __future__ import annotations

import pytest

from compiler.suggestions import MANY, hint_for

PATHS = ["F0::If_0/decoder/rnn/LSTM", "net/layer.3/attention/MatMul",
         "net/layer.11/attention/MatMul", *(f"net/x{k}" for k in range(5000))]


@pytest.mark.parametrize(("name", "first"), [
    ("LSTMM", "F0::If_0/decoder/rnn/LSTM"), ("rnn/lstm", "F0::If_0/decoder/rnn/LSTM"),
    ("attention/MatMull", "net/layer.3/attention/MatMul"),
    ("net/layer.3/attention/MatMu", "net/layer.3/attention/MatMul")])
def test_a_node_is_found_by_the_end_of_its_path(name: str, first: str) -> None:
    assert hint_for(name, PATHS).startswith(f"did you mean {first}")


def test_not_all_of_thousands_are_listed() -> None:
    hint = hint_for("?", PATHS)
    assert hint.endswith(f"and {len(PATHS) - MANY} more") and hint.count(",") == MANY - 1
    assert hint_for("?", PATHS[:3]) == f"there are: {', '.join(PATHS[:3])}"
