"""Pieces that operations print and parse their text with."""
