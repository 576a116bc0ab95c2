"""An annex: sign the verdict of a rollout, verify it, and export operations."""
