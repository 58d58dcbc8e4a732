"""Plugins: extensions in installed packages and files."""
