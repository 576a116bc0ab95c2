"""The text of a manifest: YAML with the exact place of every node, shell scripts, and cuts in both."""
