"""`python -m tests.counts`: what differs from the table; with `--write`, the table anew."""

from __future__ import annotations

import argparse
import sys

from tests.counts.table import (
    CUBINS,
    SECTIONS,
    TABLE,
    changes,
    complaint,
    counted_table,
    read_table,
    table_text,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.counts", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"rewrite {TABLE.name}")
    counted = counted_table() if parser.parse_args().write else None
    if counted is not None:
        TABLE.write_text(table_text(counted))
        return 0
    table = read_table(TABLE.read_text())
    lines = [line for s in (*SECTIONS, CUBINS) for line in changes(s, s.counted(), table)]
    print(complaint(lines) if lines else f"all counts are those of {TABLE.name}")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
