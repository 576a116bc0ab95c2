"""Commands that read and explain."""
