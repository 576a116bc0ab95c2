"""The deployable stacks: cluster, platform, serving; each with its own state. Run from a checkout under
`cdktf`.
"""

import infra as infra  # before anything of jsii
