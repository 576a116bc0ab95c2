"""A staged draft in an InferenceService's storage, added and removed byte for byte."""
