"""Target and draft into the pod: published drafts, staging modes and what each one changes."""
