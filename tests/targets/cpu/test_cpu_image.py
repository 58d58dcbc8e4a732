"""Object files become one image of code that runs anywhere."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest

from targets.cpu.build import jit, worker
from targets.cpu.build.image import LinkError, link_image
from targets.cpu.build.native import Image, load_image
from targets.cpu.machine import machine_of
from targets.interface import TargetError

pytestmark = pytest.mark.skipif(not machine_of().is_x86, reason="images are for x86-64")

CALLER = """
declare double @callee(double)
declare double @exp(double)
@factor = internal constant double 3.0
define double @entry(double %x) {
  %a = call double @callee(double %x)
  %f = load double, ptr @factor
  %b = fmul double %a, %f
  %c = call double @exp(double %b)
  ret double %c
}"""
CALLEE = """
declare double @exp(double)
@table = internal constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
define double @callee(double %x) {
  %n = fptosi double %x to i64
  %place = getelementptr double, ptr @table, i64 %n
  %value = load double, ptr %place
  %one = call double @exp(double 0.0)
  %sum = fadd double %value, %one
  ret double %sum
}"""


def compiled(text: str) -> bytes:
    machine = machine_of()
    return worker.compile_text(text, machine.cpu, machine.attributes)


def call(address: int, x: float) -> float:
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(x)


@pytest.mark.parametrize("order", [1, -1])
def test_objects_reach_each_other_and_the_c_library(order: int) -> None:
    image = link_image([compiled(t) for t in (CALLER, CALLEE)][::order], "entry")
    assert list(image.slots) == ["exp"]  # one jump for both
    assert call(load_image(image).address, 2.5) == math.exp(3.0 * (4.0 + 1.0))


def test_an_image_runs_at_several_addresses() -> None:
    image = link_image([compiled(CALLER), compiled(CALLEE)], "entry")
    libraries = [load_image(image) for _ in range(3)]
    assert len({library.address for library in libraries}) == 3
    assert {call(library.address, 0.0) for library in libraries} == {math.exp(6.0)}


def test_llvm_links_what_images_cannot_hold() -> None:
    """A variable that is written, here."""
    text = """
    @count = internal global double 40.0
    define double @entry(double %x) {
      %a = load double, ptr @count
      %b = fadd double %a, %x
      store double %b, ptr @count
      ret double %b
    }"""
    with pytest.raises(LinkError, match="section"):
        link_image([compiled(text)], "entry")
    library = jit.link([compiled(text)], "entry")
    assert library.image is None
    assert [call(library.address, 1.0) for _ in range(2)] == [41.0, 42.0]


def test_what_is_wrong_with_objects() -> None:
    code = compiled(CALLEE)
    with pytest.raises(LinkError, match="no object defines entry"):
        link_image([code], "entry")
    with pytest.raises(LinkError, match="two objects define callee"):
        link_image([code, code], "callee")
    with pytest.raises(LinkError, match="not an object file for x86-64"):
        link_image([code[:18] + struct.pack("<H", 183) + code[20:]], "callee")
    for content in (b"", b"\x7fELF", code[:100], code[:-200]):
        with pytest.raises(LinkError):
            link_image([content], "callee")


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(TargetError, match="no function strata_nothing"):
        load_image(Image(bytes(64), 0, {"strata_nothing": 0}))


def test_code_cannot_be_written() -> None:
    library = load_image(link_image([compiled(CALLER), compiled(CALLEE)], "entry"))
    rights: list[str] = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, right = line.split()[:2]
            first, end = (int(place, 16) for place in span.split("-"))
            rights += [right] * (first <= library.address < end)
    assert rights == ["r-xp"]
