"""Helpers with which operations print and parse their text."""
