"""Passes on loops and branches as such."""
