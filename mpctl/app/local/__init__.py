"""Use cases of ``mpctl local``: services as processes of this machine."""
