"""Acceptance of lookup methods on logged prompts and answers, without an engine."""
