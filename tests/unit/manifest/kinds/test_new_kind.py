"""A kind of service is added with a module and a row: nothing else that edits manifests names kinds."""

from __future__ import annotations

from package_copy import PackageCopy

MODULE = """
from mpctl.manifest.kinds.adapter import Adapter
from mpctl.manifest.kinds.pods import only_engine, service_of_pod


def read(root, file, origin):
    pod = root.need("spec").need("pod")
    return service_of_pod("InferencePod", root, file.text, origin, pod, only_engine(pod, "pod"))


INFERENCE_POD = Adapter("InferencePod", ("example.org/v1",), read)
"""
SERVICE = """\
apiVersion: example.org/v1
kind: InferencePod
metadata: {name: qwen, namespace: ml}
spec:
  pod:
    containers:
    - name: engine
      image: vllm/vllm-openai:v0.32.0
      args:
      - --model=Qwen/Qwen3-8B  # the target
"""
PROGRAM = f"""
from mpctl.manifest import load
(service,) = load({SERVICE!r})
rolled = service.with_speculation({{"method": "ngram", "num_speculative_tokens": 3}})
assert rolled.with_speculation(None).text == {SERVICE!r}
print(service.kind, service.name, load(rolled.text)[0].speculation())
"""


def test_a_kind_takes_its_module_and_its_row(tmp_path):
    copy = PackageCopy(tmp_path)
    copy.add("manifest/kinds/inference_pod.py", MODULE)
    copy.edit(
        "manifest/documents.py",
        "ADAPTERS = (",
        "from mpctl.manifest.kinds.inference_pod import INFERENCE_POD\n\nADAPTERS = (INFERENCE_POD, ",
    )
    assert (
        copy.run(PROGRAM) == "InferencePod qwen {'method': 'ngram', 'num_speculative_tokens': 3}\n"
    )
    assert len(copy.touched) == 2
