"""Passes on the `host` level; the pass `host-fold-it` lives in the file `fold_it.py`."""
