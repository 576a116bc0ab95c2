"""Use case of ``mpctl bench --tune``: find the configuration that serves fastest."""
