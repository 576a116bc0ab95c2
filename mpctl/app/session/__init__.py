"""From a place and a name to a service that can be read and changed."""
