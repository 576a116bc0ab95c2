"""Use cases on a whole cluster: diagnosis, roles, capacity, access."""
