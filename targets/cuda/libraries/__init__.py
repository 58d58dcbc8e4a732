"""Calls of vendor libraries, where the user allows them as candidates."""
