"""The steps of an operation. Each takes the context and the operation so far and acts idempotently.

What a step returns is written to the ledger, so it is small; whole measurements go to the store.
"""
