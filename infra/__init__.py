"""Reusable CDKTF constructs, cloud by cloud. They know nothing of stacks, environments or files."""
