"""The test helper `filecheck` itself."""

import pytest

from tests.filecheck import CheckError, filecheck

TEXT = "alpha 1\nbeta 22\ngamma\nbeta 3\n"


@pytest.mark.parametrize("checks", [
    "// CHECK: alpha",
    "// CHECK: alpha   1\n// CHECK-NEXT: beta {{[0-9]+}}",
    "// CHECK: beta\n// CHECK-SAME: 22\n// CHECK: beta 3",
    "// CHECK: alpha\n// CHECK-NOT: delta\n// CHECK: gamma\n// CHECK-NOT: alpha",
    "// CHECK-DAG: gamma\n// CHECK-DAG: beta\n// CHECK: beta 3",
])
def test_fulfilled(checks: str) -> None:
    filecheck(checks, TEXT)


@pytest.mark.parametrize("checks", [
    "// CHECK: delta",
    "// CHECK: gamma\n// CHECK: alpha",
    "// CHECK: alpha\n// CHECK-NEXT: gamma",
    "// CHECK: alpha\n// CHECK-SAME: 22",
    "// CHECK: alpha\n// CHECK-NOT: beta 22\n// CHECK: gamma",
    "// CHECK: gamma\n// CHECK-NOT: beta",
    "// CHECK-DAG: gamma\n// CHECK-DAG: gamma",
    "// CHECK: beta.22",
])
def test_not_fulfilled(checks: str) -> None:
    with pytest.raises(CheckError):
        filecheck(checks, TEXT)


def test_no_checks() -> None:
    with pytest.raises(ValueError, match="no CHECK lines"):
        filecheck("// check: alpha", TEXT)
