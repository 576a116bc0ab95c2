"""Manifests put together from rare features of YAML, of shells and of Kubernetes, several of them in one text.

Where :mod:`tests.corpus.fuzz` damages texts and :mod:`tests.corpus.restyle` spells data anew, this writer starts from
fragments as people paste them: merge keys, pretty-printed JSON, start scripts, variables, patches.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator

_SPEC = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
_PRETTY = json.dumps(_SPEC, indent=2)
_COMPACT = json.dumps(_SPEC, separators=(",", ":"))
_COMMENTS = (
    "# plain",
    "#\ttab\tin it",
    "# --speculative-config='{}'",
    "#",
    "# \u00fc \u4e2d \U0001f600",
    "# - item",
    "# key: value",
    "# ---",
    "#}",
    "# ]",
)

# Items of a list of arguments, one or several, each as YAML; {i} is the indentation of the dash.
_ITEMS = (
    "- --max-model-len=8192",
    "- --max-model-len\n{i}- '8192'",
    '- "--max-model-len"\n{i}- "8192"',
    "- --tensor-parallel-size=$(TP)",
    "- --served-model-name=$(NAME)\n{i}- $(ALIAS)",
    "- --seed\n{i}- !!str 7",
    "- ! '--enforce-eager'",
    "- &flag --enable-prefix-caching",
    "- --dtype=bfloat16 # half",
    "-   --enforce-eager",
    "-\n{i}  --trust-remote-code",
    "- |-\n{i}  --enforce-eager",
    "- >-\n{i}  --max-num-seqs=4",
    "- |2-\n{i}    --x",
    "- --chat-template\n{i}- |\n{i}  {{% for m in messages %}}\n{i}  {{{{ m }}}}\n{i}\n{i}  {{% endfor %}}",
    '- "--override-generation-config={{\\"temperature\\":0.6,\\n\\"top_p\\": 1}}"',
    '- --hf-overrides\n{i}- \'{{"rope_scaling": {{"type": "yarn"}}}}\'',
    '- "--allowed-origins=[\\"*\\"]"',
    "- --served-model-name=a\n{i}    b",
    "- '--api-key=it''s'",
    '- "--limit-mm-per-prompt={{\\"image\\":\\x20 2}}"',
    "- --max-model-len 8192",
    '- "--dtype\\\n{i}  =auto"',
    "- --port=8000   \t",
    "- $(EXTRA)",
    "- --kv-cache-dtype=fp8 # a'b",
    "- --compilation-config.level=3",
    "- --uvicorn-log-level=info\n{i}\n{i}",
    "- -tp=2",
    "- -O3",
    "- --",
)
_SPECS = (
    "- --speculative-config\n{i}- |\n"
    + "".join(
        f"{{i}}  {line}\n" for line in _PRETTY.replace("{", "{{").replace("}", "}}").split("\n")
    ).rstrip("\n"),
    "- --speculative-config=" + _COMPACT.replace("{", "{{").replace("}", "}}"),
    '- \'--speculative-config={{"method": "ngram", "num_speculative_tokens": 3}}\'',
    '- --speculative-config\n{i}- >-\n{i}  {{"method": "ngram",\n{i}  "num_speculative_tokens": 3}}',
    '- "--speculative-config={{\\"method\\":\\"ngram\\",\\\n{i}  \\"num_speculative_tokens\\":3}}"',
    "- --speculative-config.method\n{i}- ngram\n{i}- --speculative-config.num_speculative_tokens\n{i}- '3'",
    "- --speculative_config.method=ngram # why\n{i}# between\n{i}- --speculative_config.num-speculative-tokens=3",
    "- --spec-method=ngram\n{i}- --spec-tokens=3",
    '- -sc\n{i}- \'{{"method":"ngram","num_speculative_tokens":3}}\'',
    "- --speculative-config=\n{i}- --enforce-eager",
    "- --speculative-config\n{i}- 'null'",
    "- --speculative-config=$(SPEC)",
    '- --speculative-config={{"method":"ngram","num_speculative_tokens":2}}\n{i}- --seed=1\n{i}- --speculative-config\n'
    '{i}- \'{{"method":"suffix","num_speculative_tokens":8}}\'',
    "- --speculative-model=[ngram]\n{i}- --num-speculative-tokens=5",
)
_SCRIPTS = (
    "exec vllm serve $MODEL --port 8000",
    'exec vllm serve "$MODEL" --port=8000 "$@"',
    "set -euo pipefail\nulimit -n 65535\nexec vllm serve org/model \\\n  --port 8000 \\\n  --seed 1",
    "vllm serve org/model --port 8000 # the engine",
    "vllm serve org/model --port 8000 2>&1 | tee /tmp/log",
    "vllm serve org/model --port 8000 &\nwait -n",
    'if [ -n "$X" ]; then\n  exec vllm serve org/model --a\nfi\nexec sleep 1',
    'ARGS="--seed 1"\nexec vllm serve org/model $ARGS',
    'ARGS=(--seed 1)\nexec vllm serve org/model "${ARGS[@]}"',
    "cat > /tmp/t <<'X'\nvllm serve nothing\nX\nexec vllm serve org/model --port 8000",
    "exec python3 -m vllm.entrypoints.openai.api_server --model org/model --seed 1",
    "exec vllm serve org/model --speculative-config '" + _COMPACT + "' --seed 1",
    'exec vllm serve org/model \\\n  --speculative-config "{\\"method\\": \\"ngram\\", '
    '\\"num_speculative_tokens\\": 3}" \\\n  --seed 1',
    "exec vllm serve org/model --speculative-config='" + _PRETTY + "'",
    "exec vllm serve org/model --speculative-config.method ngram --speculative-config.num_speculative_tokens=3",
    "vllm serve org/model --port 8000; exit $?",
    "source /venv/bin/activate && vllm serve org/model --x='a b' --y=\"c $D\" --z=e\\ f",
    "eval vllm serve org/model --seed 1",
    "time vllm serve org/model --seed 1\n\n",
    "bash -c 'vllm serve org/model --seed 1'",
    "LD_PRELOAD=x vllm serve org/model --seed 1 --served-model-name a b",
    "vllm serve org/model $(cat /etc/flags) --seed 1",
    "vllm serve org/model ${EXTRA:+--extra} --seed 1",
    "vllm serve org/model --seed 1 &&\\\n  true",
    "\tvllm serve org/model\t--seed\t1",
    "while ! vllm serve org/model --seed 1; do sleep 1; done",
    "numactl --all vllm serve org/model --seed 1",
)


def featured(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Names and texts; the same ``seed`` gives the same texts."""
    for number in range(count):
        yield f"feature {seed}-{number}", feature(seed, number)


def feature(seed: int, number: int) -> str:
    """One of them."""
    rng = random.Random(f"{seed} {number} feature")
    if rng.random() < 0.06:
        return rng.choice(_PATCHES)
    parts = [_object(rng)]
    if rng.random() < 0.25:
        parts.insert(rng.randrange(2), rng.choice(_BESIDE))
    if rng.random() < 0.1:
        parts.append(rng.choice(_PATCHES))
    text = _separated(parts, rng)
    for change, odds in _WHOLE:
        if rng.random() < odds:
            text = change(text, rng)
    return text


def _separated(parts: list[str], rng: random.Random) -> str:
    text = rng.choice(
        ("", "", "---\n", "# first\n", "%YAML 1.1\n---\n", "\n\n", "--- # a\n", "---\t\n")
    )
    between = ("---\n", "---\n", "--- # next\n", "...\n---\n", "---\n# c\n\n", "---   \n")
    for number, part in enumerate(parts):
        text += rng.choice(between) if number else ""
        text += part if part.endswith("\n") else f"{part}\n"
    return text + rng.choice(("", "", "", "---\n", "...\n", "\n\n", "# end", "  \n"))


def _object(rng: random.Random) -> str:
    return rng.choice(
        (_anchored, _merged, _listed, _listed, _listed, _scripted, _scripted, _json, _json, _mixed)
    )(rng)


def _listing(rng: random.Random, indent: str) -> str:
    items = [
        *rng.sample(_ITEMS, rng.randrange(5)),
        *(rng.sample(_SPECS, 1) if rng.random() < 0.3 else ()),
    ]
    rng.shuffle(items)
    text = ""
    for item in items:
        if rng.random() < 0.25:
            text += rng.choice((indent, "", indent + "  ")) + rng.choice(_COMMENTS) + "\n"
        if rng.random() < 0.08:
            text += rng.choice(("\n", "  \n", "\t\n"))
        text += indent + item.format(i=indent) + "\n"
    if rng.random() < 0.15:
        text += rng.choice((indent, "", indent + "    ")) + rng.choice(_COMMENTS) + "\n"
    return text


def _args(rng: random.Random, indent: str) -> str:
    """The key ``args`` with its list, or what stands for an empty one."""
    key = rng.choice(("args", "args", "args", '"args"', "'args'", "args ", "!!str args"))
    dash = indent + rng.choice(("", "  "))
    items = _listing(rng, dash)
    if not re.search(r"^\s*-", items, re.MULTILINE):
        return rng.choice(
            (
                "",
                f"{indent}{key}: []\n",
                f"{indent}{key}:\n",
                f"{indent}{key}: ~\n",
                f"{indent}{key}: [ ] # x\n",
            )
        )
    opening = rng.choice(("", "", " # why", " &own", " !!seq", "  "))
    return f"{indent}{key}:{opening}\n{items}"


_MODEL_KEYS = (
    "{i}modelFormat: {{name: vLLM}}\n",
    "{i}modelFormat:\n{i}  name: vLLM\n",
    "{i}modelFormat: {{\n{i}  name: vLLM, # x\n{i}}}\n",
)
_STORED = (
    "",
    "{i}storageUri: hf://org/model\n",
    "{i}storageUri: 'hf://org/model' # ours\n",
    "{i}storageUri:\n{i}  pvc://a/b\n",
    "{i}# where it is\n\n{i}storageUri: >-\n{i}  hf://org/model\n",
    '{i}"storageUri": "s3://a/b c"\n',
)
_POD_KEYS = (
    "",
    "{i}minReplicas: 1\n",
    "{i}volumes: []\n",
    "{i}volumes:\n{i}- name: shm\n{i}  emptyDir: {{medium: Memory}}\n",
    "{i}tolerations: [{{key: gpu, operator: Exists}}]\n",
    "{i}nodeSelector: {{a: b,\n{i}  c: d}}\n",
    "{i}volumes: [{{name: shm, emptyDir: {{}}}}]\n",
    "{i}volumes:\n{i}-\n{i}  name: shm\n{i}  emptyDir: {{}}\n",
)


def _listed(rng: random.Random) -> str:
    """An InferenceService with a model."""
    inner = "      "
    keys = [
        rng.choice(_MODEL_KEYS).format(i=inner),
        rng.choice(_STORED).format(i=inner),
        _args(rng, inner),
    ]
    keys += [
        rng.choice(
            (
                "",
                f"{inner}env:\n{inner}- {{name: TP, value: '2'}}\n{inner}- name: EXTRA\n{inner}  value: --seed=3\n",
            )
        )
    ]
    rng.shuffle(keys)
    pod = rng.choice(_POD_KEYS).format(i="    ")
    model = f"    model:{rng.choice(('', ' # m', ' &m', ' !!map'))}\n{''.join(keys)}"
    halves = [pod, model]
    rng.shuffle(halves)
    head = rng.choice(_HEADS)
    return f"{head}spec:\n  predictor:\n{''.join(halves)}"


_HEADS = (
    "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: llm\n",
    "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: llm, namespace: a}\n",
    '"apiVersion": "serving.kserve.io/v1beta1"\n\'kind\': InferenceService\nmetadata:\n    name: !!str '
    'llm\n    annotations: {\n      a: "b" }\n',
    "kind: InferenceService # k\napiVersion: serving.kserve.io/v1beta1\nmetadata:\n  labels: &l\n    "
    "a: 'on'\n  name: llm\n  annotations: *l\n",
)


def _container(rng: random.Random, indent: str, run: str) -> str:
    keys = [
        f"{indent}  image: vllm/vllm-openai:v0.32.0\n",
        run,
        rng.choice(
            (
                "",
                f'{indent}  env:\n{indent}  - name: TP\n{indent}    value: "2"\n',
                f"{indent}  env: [{{name: NAME, value: a}}]\n",
            )
        ),
        rng.choice(
            (
                "",
                f"{indent}  volumeMounts: []\n",
                f"{indent}  volumeMounts:\n{indent}  - mountPath: /dev/shm\n{indent}    name: shm\n",
            )
        ),
    ]
    rng.shuffle(keys)
    return f"{indent}- name: kserve-container\n{''.join(keys)}"


def _workload(rng: random.Random, containers: str, *, head: str = "") -> str:
    """``containers``: block list items at the indentation of six."""
    beside = rng.choice(("", "", "      - {name: side, image: busybox, args: [--model, none]}\n"))
    volumes = rng.choice(("", "      volumes:\n      - name: shm\n        emptyDir: {}\n"))
    if rng.random() < 0.5:
        return (
            f"{head}apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: llm\nspec:\n  template:\n    spec:\n"
            f"      containers:\n{containers}{beside}{volumes}"
        )
    return (
        f"{head}apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: llm\nspec:\n"
        f"  predictor:\n      containers:\n{containers}{volumes}"
    )


def _command(rng: random.Random, indent: str) -> str:
    return rng.choice(
        (
            "",
            f"{indent}command: [vllm, serve]\n",
            f'{indent}command: ["vllm",\n{indent}  "serve"]\n',
            f"{indent}command:\n{indent}- python3\n{indent}- -m\n{indent}- vllm.entrypoints.openai.api_server\n",
            f"{indent}command: [/usr/bin/env, vllm, serve, org/model]\n",
        )
    )


def _mixed(rng: random.Random) -> str:
    indent = "      "
    return _workload(
        rng, _container(rng, indent, _command(rng, indent + "  ") + _args(rng, indent + "  "))
    )


def _scripted(rng: random.Random) -> str:
    """A shell with one script, in every form of text that YAML has."""
    indent, script = "      ", rng.choice(_SCRIPTS)
    inner = indent + "  "
    blank = inner + "    "
    lines = script.split("\n")
    literal = "".join(f"{blank}{line}\n" if line else "\n" for line in lines)
    forms = [
        f"{inner}- |\n{literal}",
        f"{inner}- |-\n{literal}",
        f"{inner}- |+\n{literal}\n",
        f"{inner}- | # script\n{literal}",
        f"{inner}- {json.dumps(script)}\n",
        f"{inner}- '" + script.replace("'", "''").replace("\n", f"\n\n{blank}") + "'\n",
        f"{inner}- |4\n{literal}",
        f"{inner}-\n{inner}  |\n{literal}",
    ]
    if "\n" not in script and not script.startswith("\t"):
        forms += [
            f"{inner}- >\n{blank}{script}\n",
            f"{inner}- >-\n" + "".join(f"{blank}{w}\n" for w in script.split(" ")),
        ]
        if not re.search(r": | #|^[\"'\t]|[:]$", script):
            forms.append(f"{inner}- {script}\n")
    item = rng.choice(forms)
    shell = rng.choice(
        (
            "[sh, -c]",
            "[/bin/bash, -lc]",
            "['bash', '-euxc']",
            "[/bin/sh, -c, --]",
            "[tini, --, bash, -o, pipefail, -c]",
        )
    )
    choice = rng.choice(("", "", f"{inner}- --\n", f"{inner}- x\n{inner}- --max-num-seqs=3\n"))
    run = f"{inner}command: {shell}\n{inner}args:\n{item}{choice}"
    if rng.random() < 0.3 and "- x\n" not in run:
        run = f"{inner}command:\n{inner}- bash\n{inner}- -c\n{item}"
    return _workload(rng, _container(rng, indent, run))


def _anchored(rng: random.Random) -> str:
    """Arguments that an alias repeats, or that repeat others."""
    form = rng.random()
    if form < 0.4:
        head = f"x-args: &a\n{_listing(rng, '- '.rstrip()[:0]) or '- --seed=1'}"
        head = head if head.endswith("\n") else head + "\n"
        return _workload(
            rng,
            "      - name: kserve-container\n        image: vllm/vllm-openai\n        args: *a\n",
            head=head,
        )
    if form < 0.7:
        run = f"        args:\n        - &m --max-model-len=1\n        - *m\n{_listing(rng, '        ')}"
        return _workload(rng, _container(rng, "      ", run))
    listed = _listing(rng, "        ") or "        - --seed=1\n"
    return _workload(
        rng,
        f"      - name: kserve-container\n        image: vllm/vllm-openai\n        args: &a\n{listed}"
        f"      - name: other\n        image: busybox\n        args: *a\n",
    )


def _merged(rng: random.Random) -> str:
    """Merge keys, which PyYAML and kubectl's reader take in."""
    listed = _listing(rng, "  ") or "  - --seed=1\n"
    head = f"x-base: &base\n  image: vllm/vllm-openai\n  args:\n{listed}"
    form = rng.random()
    choice = rng.choice(("", "        args: [--own]\n", "        command: [vllm, serve, org/m]\n"))
    if form < 0.4:
        return _workload(
            rng, f"      - <<: *base\n        name: kserve-container\n{choice}", head=head
        )
    if form < 0.6:
        text = "x-more: &more {image: x}\n"
        return _workload(
            rng,
            f"      - name: kserve-container\n        <<: [*base, *more]\n{choice}",
            head=head + text,
        )
    if form < 0.8:
        inner = _args(rng, "      ")
        return (
            "x-model: &model\n  modelFormat: {name: vLLM}\n  storageUri: hf://org/model\n"
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: llm\nspec:\n"
            f"  predictor:\n    model:\n      <<: *model\n{inner}"
        )
    listed = _listing(rng, "    ") or "    - --a\n"
    pod = f"x-pod: &pod\n  containers:\n  - name: kserve-container\n    image: vllm/vllm-openai\n    args:\n{listed}"
    return (
        f"{pod}apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: llm\nspec:\n"
        f"  predictor:\n    <<: *pod\n    minReplicas: 1\n"
    )


def _json(rng: random.Random) -> str:
    """A file of JSON, or YAML whose lower part is JSON."""
    args = [
        w
        for w in ("--max-model-len=8192", "--seed", "1", '--a=\u00fc"', '--b={"c": [1]}')
        if rng.random() < 0.5
    ]
    if rng.random() < 0.3:
        args += rng.choice(
            (["--speculative-config", _COMPACT], [f"--speculative-config={json.dumps(_SPEC)}"])
        )
    if rng.random() < 0.5:
        model = {"modelFormat": {"name": "vLLM"}, "storageUri": "hf://org/model", "args": args}
        if rng.random() < 0.3:
            del model["args"]
        pairs = list(model.items())
        rng.shuffle(pairs)
        spec: dict[str, object] = {"predictor": {"model": dict(pairs), "minReplicas": 1}}
        data = {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": "llm"},
        }
    else:
        fields = {
            "name": "kserve-container",
            "image": "vllm/vllm-openai",
            "args": args,
            "volumeMounts": [],
        }
        spec = {
            "template": {
                "spec": {"containers": [fields], "volumes": [{"name": "shm", "emptyDir": {}}]}
            }
        }
        data = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "llm"}}
    indent = rng.choice((None, 2, 4, "\t"))
    separators = rng.choice(((",", ":"), (", ", ": "), (",", ": "), (" , ", " : ")))
    ascii_only = rng.random() < 0.5
    if rng.random() < 0.3:
        head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in data.items())
        return f"{head}spec: {json.dumps(spec, indent=indent, ensure_ascii=ascii_only)}\n"
    return json.dumps(
        {**data, "spec": spec}, indent=indent, separators=separators, ensure_ascii=ascii_only
    )


_BESIDE = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  run.sh: |\n    vllm serve x "
    "--speculative-config '{}'\n\n",
    "  apiVersion: v1\n  kind: Service\n  metadata:\n    name: llm\n  spec:\n    ports:\n    - port: 80\n",
    "# nothing but a comment\n",
    '{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: "b\\\n  c"}}\n',
    "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: x}\n",
    "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: {<<: {a: b}, c: d}\n",
)
_PATCHES = (
    "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\npatches:\n"
    "- target: {kind: Deployment}\n"
    "  patch: |-\n    - op: add\n      path: /spec/template/spec/containers/0/args/-\n      value: --enforce-eager\n",
    "- op: add\n  path: /spec/predictor/model/args/-\n  value: --speculative-config={}\n",
    "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: llm\nspec:\n  "
    "predictor:\n    model:\n"
    "      args:\n      - --seed=1\n",
    "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata:\n  name: llm\nspec:\n  predictor:\n"
    "    containers:\n    - name: kserve-container\n      $patch: replace\n      args: [--seed=1]\n",
    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: llm\nspec:\n  template:\n    spec:\n      containers:\n"
    "      - name: vllm\n        args: [--max-model-len=1]\n",
    "apiVersion: v1\nkind: List\nitems:\n- apiVersion: serving.kserve.io/v1beta1\n  kind: "
    "InferenceService\n  metadata: {name: llm}\n"
    "  spec:\n    predictor:\n      model:\n        modelFormat: {name: vLLM}\n        args: [--seed=1]\n",
    "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec:\n  source:\n    "
    "helm:\n      values: |\n"
    "        servingEngineSpec:\n          modelSpec: []\n",
)


def _some_crlf(text: str, rng: random.Random) -> str:
    return re.sub("\n", lambda _: rng.choice(("\n", "\r\n")), text)


def _deeper(text: str, rng: random.Random) -> str:
    """Every line of the last document two blanks further right, where it is one document without block text."""
    if "---" in text or "%YAML" in text or "..." in text:
        return text
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _ended(text: str, rng: random.Random) -> str:
    return text.rstrip("\n")


def _blanks(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    for at in rng.sample(range(len(lines)), min(3, len(lines))):
        if lines[at].strip() and not lines[at].rstrip().endswith("\\"):
            lines[at] += rng.choice((" ", "  ", "\t", " \t "))
    return "\n".join(lines)


_Change = Callable[[str, random.Random], str]
_WHOLE: tuple[tuple[_Change, float], ...] = (
    (_blanks, 0.1),
    (_deeper, 0.1),
    (_ended, 0.12),
    (lambda text, _: text.replace("\n", "\r\n"), 0.1),
    (_some_crlf, 0.05),
    (lambda text, _: "\ufeff" + text, 0.05),
)
