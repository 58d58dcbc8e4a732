"""Fetches the two PP-OCRv4 networks (Apache-2.0) from the Python package that ships them.

Enters: nothing. Leaves: two `.onnx` files in the cache, each checked against its SHA-256.
The cache is `$STRATA_CACHE`, else `strata` in `$XDG_CACHE_HOME` or `~/.cache`; a second run
needs no network.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

REQUIREMENT = "rapidocr-onnxruntime==1.4.4"
WHEEL_SHA256 = "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"


class FetchError(Exception):
    """A model could not be had; the message says what to do."""


@dataclass(frozen=True)
class Model:
    """A file inside the wheel."""

    member: str
    sha256: str

    @property
    def file_name(self) -> str:
        return Path(self.member).name


DETECTOR = Model(
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
)
RECOGNIZER = Model(
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
)


def cache_folder() -> Path:
    """Where the demo keeps what it fetched."""
    root = os.environ.get("STRATA_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME", "")
    users = Path(caches) if os.path.isabs(caches) else Path.home() / ".cache"
    return (Path(root) if root else users / "strata") / "models"


def fetch(models: list[Model]) -> list[Path]:
    """The models' files, downloaded first where the cache lacks one."""
    folder = cache_folder()
    paths = [folder / model.file_name for model in models]
    missing = [
        (model, path)
        for model, path in zip(models, paths, strict=True)
        if not (path.is_file() and sha256(path.read_bytes()) == model.sha256)
    ]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(download(scratch)) as wheel:
            for model, path in missing:
                write_checked(path, wheel.read(model.member), model.sha256)
    return paths


def download(folder: str) -> Path:
    """The wheel, checked. Only its data is wanted, so any Python may fetch it."""
    print(f"fetching {REQUIREMENT} with pip ...", flush=True)
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", folder, REQUIREMENT]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise FetchError(
            f"pip could not download {REQUIREMENT}:\n{done.stderr.strip()}\n"
            f"Or put {DETECTOR.file_name} and {RECOGNIZER.file_name} into {cache_folder()}."
        )
    if sha256(wheels[0].read_bytes()) != WHEEL_SHA256:
        raise FetchError(f"{wheels[0].name} is not the expected file: its SHA-256 differs.")
    return wheels[0]


def write_checked(path: Path, data: bytes, expected: str) -> None:
    """Write by renaming, so that an interrupted run leaves no half file."""
    if sha256(data) != expected:
        raise FetchError(f"{path.name} is not the expected file: its SHA-256 differs.")
    partial = path.with_suffix(f".part{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
