"""A method is one row: its settings, its preflight and its draft follow from it."""

from __future__ import annotations

from package_copy import PackageCopy

ROW = """
- name: glide
  engine_method: glide
  summary: A head that reads the target's cache.
  needs_draft: head
  defaults: [[num_speculative_tokens, 4]]
  key_groups: [draft]
  floor: {version: [0, 40, 0], source: a release to come}
  checkpoint: glide
  for_one_target: true

- name: dspark
"""
PROGRAM = """
from mpctl.methods import ServiceFacts, build, from_config
from mpctl.methods.preflight.checks import RULES
from mpctl.methods.preflight.preflight_rule import examine
def found(spec, release):
    results = examine(RULES, spec, ServiceFacts(engine_version=release))
    return [result.finding for result in results if result.finding]
spec, remarks = build("glide", draft="org/head")
assert remarks == () and from_config(spec.config()) == spec
print(spec.describe())
print(found(spec, "0.33.0")[0].reason)
print(found(build("glide")[0], "0.40.0")[0].id)
"""


def test_a_method_takes_one_row(tmp_path):
    copy = PackageCopy(tmp_path)
    copy.edit("methods/methods.yaml", "\n- name: dspark\n", ROW)
    assert copy.run(PROGRAM).splitlines() == [
        "glide K=4 draft org/head",
        "glide needs vLLM 0.40.0 (a release to come), the engine is 0.33.0",
        "draft-missing",
    ]
    assert copy.touched == {"methods/methods.yaml"}
