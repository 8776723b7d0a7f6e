"""The Codex CLI, unmodified, through the proxy: `codex exec` over HTTP and over WebSocket, far beyond the
provider's window.

Usage: codex.py FOLDER, which takes the configuration, the state, the logs and Codex's own files.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checks import attempt, check, conclude
from stand import ROOT, Provider, Proxy, write_config
from talk import FINAL, Talk, code_word
from verdict import is_answer_to, recalled, refusals, rule_stood, unseen

WINDOW = 24_576  # Codex's own instructions and tools take 8,000 of it
STEPS = 29  # the last answer of all repeats a code word that is out of sight
LAST_LARGE = "st026c000"
READER = "read_evicted"
MAX_RESULT_CHARS = 8_000  # Codex itself cuts what is over 10,000 bytes
PATIENCE = 90  # seconds for one run
PROGRAMS = ROOT / "target/e2e-node/node_modules/.bin"
NOTICE = "The earlier part of this conversation was compacted"

CONFIG = """\
model = "{model}"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.local]
name = "local"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = {sockets}
# A retry would hide an error from this suite.
request_max_retries = 0
stream_max_retries = 0
"""


class Run(Talk):
    """One `codex exec` in a home and a project of its own."""

    def __init__(self, name, model, folder, sockets):
        super().__init__(name, model)
        self.sockets = sockets
        self.home, self.project = folder / name / "home", folder / name / "project"
        for made in (self.home, self.project):
            made.mkdir(parents=True)
        self.errors = []
        self.status = None
        self.last = self.told = ""

    def play(self, url):
        config = CONFIG.format(model=self.model, url=url, sockets=str(self.sockets).lower())
        (self.home / "config.toml").write_text(config, encoding="utf-8")
        keep = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "NO_PROXY": "127.0.0.1", "TMPDIR": str(self.home)}
        environment = keep | {"HOME": str(self.home), "CODEX_HOME": str(self.home), "OPENAI_API_KEY": self.key}
        args = ["codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        with open(self.home / "stderr", "w", encoding="utf-8") as stderr:
            done = subprocess.run(
                [*args, self.task], cwd=self.project, env=os.environ | environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
        self.status = done.returncode
        self.told = done.stdout
        for line in done.stdout.splitlines():
            self.read(json.loads(line))
        self.raw += sum(len(path.read_text(encoding="utf-8")) for path in self.project.iterdir())

    def read(self, event):
        item = event.get("item", {})
        if event["type"] in ("error", "turn.failed"):
            self.errors.append(event)
        if event["type"] == "item.completed":
            self.raw += len(item.get("text", "")) + len(item.get("aggregated_output", ""))
        if event["type"] == "item.completed" and item["type"] == "agent_message":
            self.heard(item["text"])
            self.last = item["text"]
            self.finished = self.finished or FINAL in item["text"]


def without_the_proxy(provider, folder):
    for way, sockets in (("http", False), ("socket", True)):
        run = Run(f"direct-{way}", "planned-direct", folder, sockets)
        run.play(provider.url)
        told = any("ran out of room" in str(error) for error in run.errors)
        check(f"without the proxy, {way}: it dies of its length", run.status == 1 and told, str(run.errors))


def through(proxy, folder, way):
    """With the window known, and with only the provider's refusals to go by."""
    runs = [Run(f"{knowledge}-{way}", f"{knowledge}-{way}", folder, way == "socket") for knowledge in ("planned", "unforeseen")]
    for run in runs:
        attempt(f"{run.model}: it ran to its end", lambda: run.play(proxy.url))
        check(f"{run.model}: no error", run.status == 0 and run.errors == [], f"status {run.status}: {run.errors}")
        check(f"{run.model}: the final text arrived", run.finished)
        check(f"{run.model}: the raw history was over two windows", run.raw // 4 > 2 * WINDOW, f"{run.raw // 4} tokens")
    return runs


def read_back(run, requests):
    """The model read the large outputs back by itself, to the last answer."""
    recalled(run, run.model, STEPS, requests)
    word = f"{LAST_LARGE}: {code_word(LAST_LARGE)}"
    check(f"{run.model}: its last message has the code word", word in run.last, run.last)


def main(folder):
    provider = Provider(folder, STEPS, WINDOW)
    write_config(folder, provider, MAX_RESULT_CHARS)
    without_the_proxy(provider, folder)
    proxy = Proxy(folder)
    with ThreadPoolExecutor() as both:
        over_http, over_socket = both.map(lambda way: through(proxy, folder, way), ("http", "socket"))
    evicted = proxy.metric('compactproxy_actions_total{action="evicted"}')
    check("the metrics count evictions", evicted >= len(over_http + over_socket), str(evicted))
    check("the proxy ends with status 0", proxy.stop() == 0)
    requests, total = provider.record()
    for run in over_http:
        rule_stood(run, requests)
    for run in (over_http[0], over_socket[0]):
        read_back(run, requests)
    for run in over_http + over_socket:
        check(f"{run.model}: nothing of the proxy's tool shows in its events", run.told and READER not in run.told)
    unseen(over_http[:1], [over_http[1], over_socket[1]], requests, total)
    for run in over_http + over_socket:
        bodies = [request["body"] for request in requests if is_answer_to(run, request)]
        check(f"{run.model}: what was sent was compacted", any(NOTICE in body for body in bodies))
        print(f"       {run.model}: {len(bodies)} answers, {refusals(run, requests)} refusals unseen")
    check("the provider was asked for a summary", total["side_calls"] >= 1)
    print(f"       the provider's account: {total | {'violations': len(total['violations'])}}")


if __name__ == "__main__":
    attempt("the suite ran to its end", lambda: main(Path(sys.argv[1])))
    conclude()
