"""`lower`: levels, dumps, and starting again from any of them."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from compiler.pipeline.steps import PIPELINE
from tests.cli.conftest import Run

REFERENCE = ("--target", "reference")
LEVELS = list(dict.fromkeys(step.level for step in PIPELINE))


def dump(strata: Run, model: Path, folder: Path, *more: object) -> list[Path]:
    done = strata("lower", model, "--target", "reference", "--to", LEVELS[-1], "--dump-dir",
                  folder, *more)
    assert done.status == 0, done.err
    return sorted(folder.glob("*.mlir"))


def test_lower_to_graph_prints_the_graph(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "graph")
    assert done.status == 0
    assert "graph.matmul" in done.out
    assert "graph.softmax" not in done.out
    assert "loc(" not in done.out


def test_locations_are_printed_on_request(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "graph",
                  "--print-locations")
    assert 'loc("project")' in done.out


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_can_be_asked_for(strata: Run, small_model: Path, level: str) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", level)
    assert done.status == 0, done.err
    assert "builtin.module" in done.out


def test_dumps_are_numbered_and_listed(strata: Run, small_model: Path, tmp_path: Path) -> None:
    files = dump(strata, small_model, tmp_path / "dumps")
    assert files[0].name == "00-graph-import.mlir"
    assert [f.name[:2] for f in files] == [f"{k:02}" for k in range(len(files))]
    index = (tmp_path / "dumps" / "index.md").read_text()
    assert all(f"({f.name})" in index for f in files)
    assert (tmp_path / "dumps" / "weights.npz").is_file()
    texts = [f.read_text().partition("\n")[2] for f in files]
    assert all(a != b for a, b in pairwise(texts))


def test_earlier_dumps_go_and_other_files_stay(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "dumps"
    dump(strata, small_model, folder)
    mine = ("notes.txt", "02-my-edit.mlir", "99-my.mlir", "77-graph-old.mlir", "98-x.ll")
    for name in mine:
        (folder / name).write_text("mine")
    first = {p.name for p in folder.iterdir()}
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--dump-dir",
                  folder)
    assert done.status == 0, done.err
    assert {p.name for p in folder.iterdir()} < first  # fewer passes ran
    assert [(folder / name).read_text() for name in mine] == ["mine"] * len(mine)


def test_an_edited_dump_is_not_written_over(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "dumps"
    edited = dump(strata, small_model, folder)[2]
    edited.write_text(edited.read_text() + "// mine\n")
    before = {p: p.read_bytes() for p in folder.iterdir()}
    done = strata("lower", small_model, "--target", "reference", "--dump-dir", folder)
    assert done.status == 1
    assert edited.name in done.err and "changed after an earlier dump" in done.err
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.parametrize("name", ["00-graph-import.mlir", "weights.npz", "index.md"])
def test_a_file_of_another_maker_is_not_written_over(
    strata: Run, small_model: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / name).write_text("mine")
    done = strata("lower", small_model, "--target", "reference", "--dump-dir", folder)
    assert done.status == 1
    assert f"'{name}' is there, and no dump wrote it" in done.err
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize("listed", ['{"files": {"../precious": [7, 7]}}', "[", "null",
                                    '{"files": {"a": 1, "..": [1]}}', "[" * 100000])
def test_a_list_of_files_leads_nowhere_else(
    strata: Run, small_model: Path, tmp_path: Path, listed: str
) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    (folder / ".strata-dump.json").write_text(listed)
    dump(strata, small_model, folder)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_dump_goes_on_where_it_was_written(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    """From each dump, the passes behind it make the same texts as in the first run."""
    files = dump(strata, small_model, tmp_path / "all")
    for k, file in enumerate(files):
        again = dump(strata, file, tmp_path / f"from{k}")
        assert [f.read_text() for f in again] == [f.read_text() for f in files[k:]], file.name


def test_from_runs_the_whole_level_again(strata: Run, small_model: Path, tmp_path: Path) -> None:
    files = dump(strata, small_model, tmp_path / "all")
    last_graph = [f for f in files if "level=graph" in f.read_text()][-1]
    again = dump(strata, last_graph, tmp_path / "again", "--from", "graph")
    assert again[0].read_text().partition("\n")[2] == last_graph.read_text().partition("\n")[2]
    done = strata("lower", last_graph, "--target", "reference", "--from", "loop")
    assert done.status == 1
    assert "the model is at graph level" in done.err


def test_there_is_no_way_back_up(strata: Run, small_model: Path, tmp_path: Path) -> None:
    last = dump(strata, small_model, tmp_path / "all")[-1]
    done = strata("lower", last, "--target", "reference", "--to", "graph")
    assert done.status == 1
    assert "no way back up" in done.err


def test_a_text_without_header_starts_at_its_level(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    files = dump(strata, small_model, tmp_path / "all")
    bare = tmp_path / "all" / "bare.mlir"
    bare.write_text(files[0].read_text().partition("\n")[2])
    again = dump(strata, bare, tmp_path / "again")
    assert again[-1].read_text() == files[-1].read_text()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_code_for_gpus_that_are_not_here(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "hip", "--to", "amdgcn")
    assert done.status == 0 and "gfx942" in done.out and "s_endpgm" in done.out


def test_output_is_written_whole_or_not_at_all(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.mlir"
    target.write_text("before")
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    assert strata("lower", bad, "--target", "reference", "-o", target).status == 1
    assert target.read_text() == "before"
    assert strata("lower", small_model, "--target", "reference", "--to", "graph", "-o",
                  target).status == 0
    assert "graph.matmul" in target.read_text()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_missing_weights_are_named(strata: Run, small_model: Path, tmp_path: Path) -> None:
    files = dump(strata, small_model, tmp_path / "all")
    (tmp_path / "all" / "weights.npz").unlink()
    done = strata("run", files[-1], "--target", "reference")
    assert done.status == 1
    assert "'w'" in done.err
    assert "--weights" in done.err
    again = strata("run", files[-1], "--target", "reference", "--weights", small_model)
    assert again.status == 0, again.err


def test_sizes_can_be_fixed(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--dim", "n=5",
                  "--shape", "rows=3")
    assert "f32[5, 8]" in done.out
    assert "i64[3]" in done.out


def test_opt_runs_the_passes_that_are_named(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    first = dump(strata, small_model, tmp_path / "all")[0]
    assert "graph.softmax" in strata("opt", first, "--passes", "graph-dce", *REFERENCE).out
    decomposed = strata("opt", first, "--passes", "graph-decompose", *REFERENCE)
    assert "graph.softmax" not in decomposed.out
    assert strata("opt", small_model, "--passes", "graph-dce").status == 2
