"""The editor over manifests that nobody wrote for it, judged by parsers that are not its own."""
