"""A chat request to a served model."""

import json
import urllib.request


def ask(url, prompt="one two three", model="demo", **headers):
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 50}
    ).encode()
    request = urllib.request.Request(
        url + "/v1/chat/completions", body, {"Content-Type": "application/json", **headers}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=120
    ) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
