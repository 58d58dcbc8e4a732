"""The command line: code that the commands share. The commands themselves are in `commands`."""
