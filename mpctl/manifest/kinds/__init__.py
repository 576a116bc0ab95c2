"""A module per kind of service: where its engine, its storage and its replicas are written."""
