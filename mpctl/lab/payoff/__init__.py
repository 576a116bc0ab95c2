"""Predicted gain of speculation before a rollout: a roofline with the KV pool, fitted to published measurements."""
