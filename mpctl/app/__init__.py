"""Use cases: a frozen request and a session in, a typed outcome out. No click, no printing."""
