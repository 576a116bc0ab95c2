"""Reusable CDKTF constructs, cloud by cloud. They know nothing of stacks, environments or files."""

import os

# jsii prints a banner about Node 20 at every start, which buries the errors below it; docs/how-to/stacks.md
# says which Node. Set here because jsii starts when anything of it is imported.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
