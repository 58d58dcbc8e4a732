"""Scheduling of matrix products."""
