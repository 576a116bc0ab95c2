"""Staging of target and draft in the pod: published drafts, staging modes and the changes of each."""
