"""Calls of vendor libraries, where the user lets them be candidates."""
