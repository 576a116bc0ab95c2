"""Commands for the shell and for help."""
