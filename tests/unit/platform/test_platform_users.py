"""Users of a drill: their tokens are those of the usage that ends a stream, and anything else is a failed request."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mpctl.platform.users import Users

TOKEN = 'data: {"choices": [{"delta": {"content": "a"}}], "usage": null}\n\n'


@pytest.fixture
def ask():
    """Asks a server that answers with these bytes."""
    servers = []

    def ask(body, status=200):
        class Answering(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        users = Users(f"http://127.0.0.1:{server.server_port}", "demo", None, clients=0, max_tokens=8)
        return users.ask("a question")

    yield ask
    for server in servers:
        server.shutdown()
        server.server_close()


def test_tokens_are_those_of_the_usage_that_ends_the_stream(ask):
    answer = ask(f'{TOKEN}{TOKEN}data: {{"choices": [], "usage": {{"completion_tokens": 7}}}}\n\ndata: [DONE]\n\n')
    assert (answer.tokens, answer.error) == (7, "")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (TOKEN, 200, "no usage in the answer"),
        ("", 200, "no usage in the answer"),
        ('data: {"error": {"message": "worker died", "code": 500}}\n\n', 200, "error 500 in place of an answer"),
        ("busy", 503, "status 503"),
    ],
)
def test_a_stream_without_its_end_is_a_failed_request(ask, body, status, error):
    answer = ask(body, status)
    assert (answer.tokens, answer.error) == (0, error)
