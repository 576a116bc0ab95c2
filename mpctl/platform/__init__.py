"""Platforms that run services. Each implements the ports of ``mpctl.rollout``."""
