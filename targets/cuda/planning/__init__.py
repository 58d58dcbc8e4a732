"""From a module at block level to a program as data (`runtime/program.py`)."""
