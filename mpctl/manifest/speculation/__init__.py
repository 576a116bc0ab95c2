"""The speculative setting of an engine's command line, read and rewritten."""
