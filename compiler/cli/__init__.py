"""The command line: what its commands share; the commands themselves lie in `commands`."""
