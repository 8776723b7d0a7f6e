"""The programs under test as processes: the strict provider and the proxy, on free ports."""

import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20  # seconds until a program must be ready, or gone

# The provider's window. The planned sessions are told of it, the unforeseen ones are not.
WINDOW = 16_384
MAX_RESULT_CHARS = 12_000

CONFIG = """\
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
drain_timeout = "5s"

[[upstream]]
name = "strict"
base_url = "http://{provider}"

[state]
url = "sqlite://{state}"

[tool_result_eviction]
max_result_chars = {max_result_chars}
preview_chars = 500

[truncate_args]
keep_messages = 6
min_gain_tokens = 3_000

[prune]
protect_tokens = 3_000
min_gain_tokens = 3_000
max_output_chars = 1_000

[compaction]
reserved_tokens = 2_000
keep_tokens = 2_500

[tools]

[sessions]

[[window]]
model = "planned*"
total = {window}

# Only the provider's own refusal says anything of these.
[[policy]]
match = {{ model = "unforeseen*" }}
tool_result_eviction = false
truncate_args = false
prune = false
compaction = {{ trigger_tokens = 0 }}
"""


class Program:
    """A running program whose first line that begins with `listening ` says that it is ready."""

    def __init__(self, args, speaks_on, log):
        self.name = Path(args[0]).name
        self.lines = []
        self._ready = threading.Event()
        self._heard = threading.Condition()
        pipe = {speaks_on: subprocess.PIPE}
        other = "stderr" if speaks_on == "stdout" else "stdout"
        self._log = open(log, "a", encoding="utf-8")
        self.process = subprocess.Popen(args, **pipe, **{other: self._log}, text=True, encoding="utf-8")
        self._reader = threading.Thread(target=self._read, args=(getattr(self.process, speaks_on),), daemon=True)
        self._reader.start()
        if not self._ready.wait(PATIENCE) or not self.lines:
            self.kill()
            raise RuntimeError(f"{self.name} did not start; see {log}")

    def _read(self, pipe):
        for line in pipe:
            self._log.write(line)
            self._log.flush()
            if line.startswith("listening "):
                self.listening = line.split()[1:]
                self._ready.set()
            with self._heard:
                self.lines.append(line)
                self._heard.notify_all()
        self._ready.set()

    def wait_for(self, line):
        """Until it has said that."""
        with self._heard:
            if not self._heard.wait_for(lambda: f"{line}\n" in self.lines, PATIENCE):
                raise RuntimeError(f"{self.name} did not say {line!r}")

    def stop(self):
        """Asks it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self):
        """kill -9."""
        self.process.kill()
        return self._ended()

    def _ended(self):
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RuntimeError(f"{self.name} did not end within {PATIENCE} s") from None
        self._reader.join(PATIENCE)
        return status


class Provider(Program):
    """The strict provider with its scripted model."""

    def __init__(self, folder, steps, window=WINDOW, script=None):
        binary = str(ROOT / "target/debug/examples/strict_provider")
        args = [binary, "--window", str(window), "--steps", str(steps)]
        args += ["--script", str(script)] if script else []
        super().__init__(args, "stdout", folder / "provider.log")
        self.window = window
        self.address = self.listening[0]
        self.root = f"http://{self.address}"
        self.url = f"{self.root}/v1"

    def record(self):
        """Ends it: the completions it was asked for, and their sum."""
        self.stop()
        *requests, total = [json.loads(line) for line in self.lines if line.startswith("{")]
        return requests, total


class Proxy(Program):
    """The proxy under test, serving the configuration of `write_config`."""

    def __init__(self, folder):
        self.config = folder / "proxy.toml"
        super().__init__([program("compactproxy"), "--config", str(self.config)], "stderr", folder / "proxy.log")
        addresses = dict(part.split("=", 1) for part in self.listening)
        self.root = f"http://{addresses['proxy']}"
        self.url = f"{self.root}/v1"
        self.admin = addresses["admin"]

    def metric(self, line):
        """The sum of the metrics whose lines begin so."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=PATIENCE) as response:
            lines = response.read().decode().splitlines()
        return sum(float(text.rsplit(" ", 1)[1]) for text in lines if text.startswith(line))


def write_config(folder, provider, max_result_chars=MAX_RESULT_CHARS, more=""):
    """The configuration that all proxies of a run share, and with it their state."""
    values = {"provider": provider.address, "state": folder / "state.db", "window": provider.window}
    text = CONFIG.format(max_result_chars=max_result_chars, **values)
    (folder / "proxy.toml").write_text(text + more, encoding="utf-8")


def program(name):
    """Path of a release build's program."""
    return str(ROOT / os.environ.get("COMPACTPROXY_BUILD", "target/release") / name)


def command(*args, stdin=b""):
    """Runs the proxy's program to its end: exit status and stdout, in bytes."""
    done = subprocess.run(
        [program("compactproxy"), *args], input=stdin, capture_output=True, timeout=PATIENCE, check=False
    )
    return done.returncode, done.stdout


def pointers(body):
    """The ids of removed texts that a request's body names."""
    return re.findall(r"/_compactproxy/evicted/([0-9a-f]{32})", body)


def messages(body, array="messages"):
    """The raw text of each message (or item) of a request's body."""
    decoder = json.JSONDecoder()
    at = re.search(rf'"{array}"\s*:\s*\[', body).end()
    found = []
    while True:
        at += len(body[at:]) - len(body[at:].lstrip(" \t\r\n,"))
        if body[at] == "]":
            return found
        _, end = decoder.raw_decode(body, at)
        found.append(body[at:end])
        at = end
