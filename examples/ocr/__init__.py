"""Reads a picture's text with two real networks that Strata compiles: `python -m examples.ocr`."""
