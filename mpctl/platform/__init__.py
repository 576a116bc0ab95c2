"""Where a service runs. Each platform implements the ports of ``mpctl.rollout``."""
