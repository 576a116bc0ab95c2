"""Prove on a service of this machine that the watch finds a fault, falls back and tries the better spec again.

A drill has users of its own, breaks the serving engine or changes what its users ask, and runs the watch beside it. The
service ends as it was. Throughput is that of the users: each answer's tokens are spread over the time the answer took.
"""
