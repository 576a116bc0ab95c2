"""Commands that work on a whole cluster."""
