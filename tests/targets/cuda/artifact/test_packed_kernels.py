"""What unpacks the kernels of a library: any stream of zlib's, and damaged ones inside memory."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

import targets.cuda.artifact
from tests import processes
from tests.targets.cpu.artifact.shipped import build, has_sanitizers, needs_tools

pytestmark = needs_tools
PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "unpack.c"

int main(int argc, char **argv) {
    size_t bytes = (size_t)atol(argv[argc - 2]), wanted = (size_t)atol(argv[argc - 1]);
    unsigned char *packed = malloc(bytes + !bytes), *out = malloc(wanted + !wanted);
    codes *table = malloc(sizeof *table);
    if (fread(packed, 1, bytes, stdin) != bytes) return 2;
    int right = unpack(packed, bytes, out, wanted, table);
    if (right) fwrite(out, 1, wanted, stdout);
    fflush(stdout);
    free(packed);
    free(out);
    free(table);
    return !right;
}
"""
NOISE = random.Random(5).randbytes(70_000)
TEXTS = {"nothing": b"", "a byte": b"x", "noise": NOISE, "a run": bytes(300_000),
         "pairs": b"ab" * 40_000, "far repeats": NOISE[:32_768] * 3,
         "few symbols": bytes(b % 3 for b in NOISE),
         "skewed": b"".join(bytes([k]) * (1 << min(k, 15)) for k in range(18))}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpack")
    (folder / "main.c").write_text(PROGRAM)
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if has_sanitizers() else []
    build([folder / "main.c"], folder / "main", "-O1", *flags,
          f"-I{Path(targets.cuda.artifact.__file__).parent}")
    return folder / "main"


def unpacked(program: Path, packed: bytes, wanted: int) -> bytes | None:
    """The bytes, or None if they are refused."""
    done = processes.run([program, str(len(packed)), str(wanted)], input=packed,
                         capture_output=True, limit=60)
    assert done.returncode in (0, 1), done.stderr.decode()
    return None if done.returncode else done.stdout


def packed_as(text: bytes, level: int, strategy: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize(("level", "strategy"), [
    (9, zlib.Z_DEFAULT_STRATEGY), (1, zlib.Z_DEFAULT_STRATEGY), (0, zlib.Z_DEFAULT_STRATEGY),
    (9, zlib.Z_FIXED), (9, zlib.Z_HUFFMAN_ONLY), (9, zlib.Z_RLE)])
@pytest.mark.parametrize("name", TEXTS)
def test_what_zlib_packs_is_unpacked(
    name: str, level: int, strategy: int, program: Path
) -> None:
    text = TEXTS[name]
    packed = packed_as(text, level, strategy)
    assert unpacked(program, packed, len(text)) == text
    assert unpacked(program, packed, len(text) + 1) is None
    assert not text or unpacked(program, packed, len(text) - 1) is None


def test_damage_stays_inside(program: Path) -> None:
    draw = random.Random(11)
    text = b"".join(TEXTS.values())[-120_000:]
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED):
        packed = packed_as(text, 9, strategy)
        assert unpacked(program, packed[: len(packed) // 2], len(text)) is None
        for _ in range(25):
            damaged = bytearray(packed)
            damaged[draw.randrange(len(packed))] ^= 1 << draw.randrange(8)
            found = unpacked(program, bytes(damaged), len(text))
            assert found is None or len(found) == len(text)
        assert unpacked(program, draw.randbytes(3_000), 50_000) is None
