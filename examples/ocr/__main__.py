"""The demo: `python -m examples.ocr [PICTURE]`.

Compiles the two PP-OCRv4 networks for the CPU, shows every level that was written on the way,
reads a picture's text, and times both networks beside onnxruntime on one thread.
Exit status: 0 when both engines read the same text, 1 when they differ or something is missing.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from examples.ocr.detect import detect
from examples.ocr.engines import Engine, Feed, OnnxRuntime, Strata
from examples.ocr.models import DETECTOR, RECOGNIZER, FetchError, fetch
from examples.ocr.recognize import Line, recognize

PICTURE = Path(__file__).with_name("receipt.png")
THREADS = 1


@dataclass
class Recorder:
    """Passes every call on to an engine and keeps what went in and came out."""

    engine: Engine
    calls: list[tuple[Path, Feed, list[np.ndarray]]]

    @property
    def name(self) -> str:
        return self.engine.name

    def run(self, model: Path, feed: Feed) -> list[np.ndarray]:
        outputs = self.engine.run(model, feed)
        self.calls.append((model, feed, outputs))
        return outputs


def read(engine: Engine, models: list[Path], image: Image.Image) -> list[Line]:
    """The whole pipeline: find the lines, then read them."""
    detector, recognizer = models
    return recognize(engine, recognizer, image, detect(engine, detector, image))


def show_levels(strata: Strata, models: list[Path]) -> None:
    """Compile, and list the text that each level and pass left."""
    for model in models:
        strata.prepare(model)
        print(f"\n{model.stem}: compiled in {strata.compile_seconds[model]:.2f} s, this included:")
        for path in texts(strata, model):
            lines = path.read_bytes().count(b"\n")
            print(f"  {path.name:40} {lines:7,} lines {path.stat().st_size:11,} bytes")


def texts(strata: Strata, model: Path) -> list[Path]:
    """The numbered files of a model's dump: a module after a pass, and the target's code."""
    folder = strata.dump_folder(model)
    return sorted(folder.glob("[0-9][0-9]-*")) if folder else []


def show_text(name: str, lines: list[Line]) -> None:
    print(f"\ntext read with {name}:")
    for line in lines:
        print(f"  {line.confidence:.2f}  {line.text}")


def difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest difference of any element of any output."""
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def interleaved_medians(engines: list[Engine], model: Path, feed: Feed, rounds: int) -> list[float]:
    """Milliseconds per engine. In turns, so that what else the machine does hits all alike."""
    for engine in engines:
        engine.run(model, feed)
    times: list[list[float]] = [[] for _ in engines]
    for _ in range(rounds):
        for engine, taken in zip(engines, times, strict=True):
            start = time.perf_counter()
            engine.run(model, feed)
            taken.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(taken) for taken in times]


def compare(ours: Recorder, peer: OnnxRuntime, rounds: int) -> None:
    """Each network on the very input that the pipeline gave it, beside onnxruntime."""
    print(f"\ntime per inference, {THREADS} thread each, median of {rounds} interleaved rounds:")
    for model, feed, outputs in ours.calls:
        shape = "x".join(str(n) for n in next(iter(feed.values())).shape)
        mine, other = interleaved_medians([ours.engine, peer], model, feed, rounds)
        print(
            f"  {model.stem} on {shape}: {ours.name} {mine:.2f} ms, {peer.name} {other:.2f} ms "
            f"({other / mine:.2f}x its speed); "
            f"largest difference {difference(outputs, peer.run(model, feed)):.1e}"
        )


def demo_strata(models: list[Path], image: Image.Image, dumps: Path, rounds: int) -> int:
    strata, peer = Strata(THREADS, dumps), OnnxRuntime(THREADS)
    show_levels(strata, models)
    ours = Recorder(strata, [])
    lines = read(ours, models, image)
    show_text(strata.name, lines)
    compare(ours, peer, rounds)
    theirs = read(peer, models, image)
    same = [line.text for line in lines] == [line.text for line in theirs]
    if same:
        print(f"\n{peer.name} reads the same text.")
    else:
        show_text(peer.name, theirs)
    nests = next(path for path in texts(strata, models[0]) if "loop-fuse" in path.name)
    print(f"\nEvery level of both networks is under {dumps}. Open one, edit it, and go on from it:")
    print(f"  python -m compiler lower {nests} --target cpu -o detector.ll")
    return 0 if same else 1


def demo_onnxruntime(models: list[Path], image: Image.Image) -> int:
    """The pipeline without Strata: shows what the pre- and post-processing do."""
    peer = OnnxRuntime(THREADS)
    show_text(peer.name, read(peer, models, image))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.ocr", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("picture", nargs="?", type=Path, default=PICTURE)
    parser.add_argument("--engine", choices=["strata", "onnxruntime"], default="strata")
    parser.add_argument("--dump-dir", type=Path, default=Path("build/ocr-levels"))
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds per network")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    try:
        image = Image.open(options.picture).convert("RGB")
        models = fetch([DETECTOR, RECOGNIZER])
    except (OSError, FetchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.engine == "onnxruntime":
        return demo_onnxruntime(models, image)
    return demo_strata(models, image, options.dump_dir, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
