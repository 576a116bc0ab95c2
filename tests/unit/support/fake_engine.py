"""Modules that stand for vLLM and what it needs on a node without a GPU: a stage imports them in a process of its own.

The engine imports its connector by module path, as vLLM's factory does, and answers each prompt with two tokens.
``FAKE_ENGINE=broken`` makes it fail at its start.
"""

from __future__ import annotations

from pathlib import Path

_VLLM = """
import importlib, json, os, pathlib
from types import SimpleNamespace as Of
__version__ = "0.32.0"
SamplingParams = Of
TokensPrompt = dict
class LLM:
    def __init__(self, model, *, speculative_config, kv_transfer_config=None, **settings):
        if os.environ.get("FAKE_ENGINE") == "broken":
            raise RuntimeError("no memory for the planted secret")
        self.llm_engine, self.requests = self, []
        if kv_transfer_config is not None:
            module = importlib.import_module(kv_transfer_config["kv_connector_module_path"])
            assert callable(getattr(module, kv_transfer_config["kv_connector"]))
            self.raw = pathlib.Path(kv_transfer_config["kv_connector_extra_config"]["shared_storage_path"])
            self.layers = speculative_config["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"]
    def get_tokenizer(self):
        return Of(apply_chat_template=lambda messages, **_: messages[0]["content"], encode=lambda text, **_: [1, 2])
    def generate(self, prompts, sampling, use_tqdm):
        answers = []
        for index, prompt in enumerate(prompts):
            tokens = [*prompt["prompt_token_ids"], 7]
            rows = [[[layer] for layer in self.layers] for _ in tokens]
            file = self.raw / f"{index}.safetensors"
            file.write_text(json.dumps({"token_ids": tokens, "hidden_states": rows}))
            states = {"hidden_states_path": str(file)}
            answers.append(Of(kv_transfer_params=states, outputs=[Of(finish_reason="stop")]))
        return answers
    def add_request(self, name, prompt, sampling):
        self.requests += [(name, new) for new in (1, 3, 1, 1)]
    def has_unfinished_requests(self):
        return bool(self.requests)
    def step(self):
        name, new = self.requests.pop(0)
        return [Of(request_id=name, outputs=[Of(token_ids=[0] * new)])]
"""
_TORCH = """
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
"""
_SAFETENSORS = """
import json, pathlib
class Ids(list):
    def tolist(self):
        return list(self)
class Rows(list):
    nbytes = 1024
    def __getitem__(self, at):
        return Rows([[row[layer] for layer in at[1]] for row in self])
    def contiguous(self):
        return self
def load_file(path):
    record = json.loads(pathlib.Path(path).read_text())
    return {"token_ids": Ids(record["token_ids"]), "hidden_states": Rows(record["hidden_states"])}
def save_file(record, path):
    pathlib.Path(path).write_text(json.dumps(record))
"""
_CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/v1"
_MODULES = {
    "mpctl.py": "raise ImportError('a pod has no mpctl')",
    "torch.py": _TORCH,
    "torch-2.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.0\n",
    "transformers.py": """
from types import SimpleNamespace as Of
class AutoConfig:
    from_pretrained = staticmethod(lambda model, revision: Of(get_text_config=lambda: Of(num_hidden_layers=6)))
""",
    "transformers-5.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: transformers\nVersion: 5.0\n",
    "safetensors/__init__.py": "",
    "safetensors/torch.py": _SAFETENSORS,
    "vllm/__init__.py": _VLLM,
    "vllm/sampling_params.py": "class RequestOutputKind: DELTA = 1",
    f"{_CONNECTORS}/example_hidden_states_connector.py": """
class ExampleHiddenStatesConnector: pass
extract_from_kv_cache = None
""",
}


def fake_engine(folder: Path) -> Path:
    """Write the modules; return the folder for PYTHONPATH."""
    for name, text in _MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
