"""A fault at every call to the API server over one cycle of a service: ``python -m tests.sweep``; see ``__main__``."""
