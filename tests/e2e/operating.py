"""What operators use: the reader, the commands, the admin port."""

import json
import urllib.error
import urllib.request

from checks import check
from stand import MAX_RESULT_CHARS, command, messages, pointers


def read_back(proxy, session, bodies):
    """One removed text by its id: over HTTP whole and in part, and by the command."""
    results = [message["content"] for message in session.history if message["role"] == "tool"]
    large = next(text for text in results if len(text) > MAX_RESULT_CHARS)
    opening = large.splitlines()[0]
    shortened = (message for body in bodies for message in messages(body) if opening in message and pointers(message))
    id = pointers(next(shortened))[0]
    check("an evicted text is read back over HTTP", fetch(proxy, id) == large.encode())
    page = fetch(proxy, f"{id}?offset=10&limit=3")
    check("in part, by lines", page.decode().split("\n")[:3] == large.split("\n")[10:13])
    page = fetch(proxy, f"{id}?unit=chars&offset=100&limit=50")
    check("in part, by characters", page.decode() == large[100:150])
    check("an unknown id is 404", fetch(proxy, "0" * 32) == 404)
    config = str(proxy.config)
    check("the command prints the same text", command("evicted", id, "--config", config) == (0, large.encode()))
    check("the command fails for an unknown id", command("evicted", "0" * 32, "--config", config)[0] == 1)


def compacted(proxy, session):
    """`compact` on the body that was too long, and on what is none."""
    raw = json.dumps(session.request()).encode()
    status, body = command("compact", "--api", "chat", "--config", str(proxy.config), stdin=raw)
    check("compact shortens the body that did not fit", status == 0 and len(body) < len(raw) and json.loads(body))
    check("compact keeps the user's rule", session.rule.encode() in body)
    junk = b'{"messages": ['
    same = command("compact", "--api", "chat", "--config", str(proxy.config), stdin=junk) == (0, junk)
    check("compact writes what it cannot parse as it is", same)


def operated(proxy):
    """The admin port, and the end."""
    status = proxy.process.poll()
    check("the proxy still runs", status is None, f"it ended with status {status}")
    check("the health command says ready", command("health", "--admin", proxy.admin)[0] == 0)
    with urllib.request.urlopen(f"http://{proxy.admin}/metrics", timeout=20) as response:
        metrics = response.read().decode()
    check("the metrics count requests", "compactproxy_requests_total" in metrics)
    check("a signal to stop ends it with status 0", proxy.stop() == 0)
    check("then the health command says no", command("health", "--admin", proxy.admin)[0] == 1)


def fetch(proxy, rest):
    """The body behind the reserved prefix, or the status that is no success."""
    try:
        with urllib.request.urlopen(f"{proxy.root}/_compactproxy/evicted/{rest}", timeout=20) as response:
            return response.read()
    except urllib.error.HTTPError as error:
        return error.code
