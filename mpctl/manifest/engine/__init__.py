"""The engine of a service: which container starts vLLM, and with which words."""
