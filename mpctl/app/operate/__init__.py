"""Use cases that change a service."""
