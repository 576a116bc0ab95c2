"""Use cases that read and change nothing."""
