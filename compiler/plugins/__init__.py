"""What comes from outside: packages and files."""
