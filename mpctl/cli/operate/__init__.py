"""Commands that change a service."""
