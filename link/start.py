#!/usr/bin/env python3
"""Writes link/start.ld: a linker script that puts first what small requests run, then what runs until the proxy listens,
then what runs in the demo.

    python3 link/start.py target/release/compactproxy
"""
import collections, http.client, http.server, json, os, re, subprocess, sys, tempfile, threading, time
from pathlib import Path

# A module of which so much runs is named as a whole.
WHOLE = 0.4
CONFIG = """
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
[[upstream]]
name = "openai"
base_url = "{openai}"
[[upstream]]
name = "anthropic"
base_url = "{anthropic}"
[tool_result_eviction]
[truncate_args]
[prune]
[compaction]
[overflow_recovery]
[sessions]
[[window]]
model = "m"
input = 128_000
"""
# Where the proxy is not to get to.
NOWHERE = {"openai": "https://api.openai.com/v1", "anthropic": "http://127.0.0.1:9"}
# Small requests of one kind, and instructions in each, about, from which on a function counts as run by them.
REQUESTS, LEAST = 200, 4


def general(name):
    """A mangled name without its hash, which changes with the compiler."""
    return re.sub(r"17h[0-9a-f]{16}E$", "17h*", re.sub(r"\.llvm\.\d+$", "", name))


def watched(program, *arguments, upstreams=NOWHERE, until=None, then=None):
    """Callgrind's output about the program, until it ends; or until it has said `until`. With `then`, only what runs
    during that, which gets the port."""
    with tempfile.TemporaryDirectory() as folder:
        # What is written behind a request is none of it.
        config = CONFIG.replace("[sessions]\n", "") if then else CONFIG
        Path(folder, "proxy.toml").write_text(config.format(**upstreams))
        command = ["valgrind", "--tool=callgrind", "--demangle=no", "--callgrind-out-file=out", program]
        if then:
            command.insert(2, "--instr-atstart=no")
        # The proxy begins anew unless this is set.
        environment = os.environ | {"MIMALLOC_PURGE_DELAY": "30"}
        with open(Path(folder, "log"), "w+") as log:
            running = subprocess.Popen([*command, *arguments], cwd=folder, env=environment, stdout=log, stderr=log)
            while running.poll() is None:
                time.sleep(0.2)
                said = Path(folder, "log").read_text()
                if until and until in said:
                    if then:
                        control = ["callgrind_control", "-i", "on", str(running.pid)]
                        subprocess.run(control, stdout=subprocess.DEVNULL, check=True)
                        then(int(re.search(r"proxy=\S*:(\d+)", said)[1]))
                    time.sleep(1)
                    running.terminate()
                    running.wait()
        return Path(folder, "out").read_text(errors="replace").splitlines()


def ran(*arguments, **until):
    """The functions that run."""
    found = (re.match(r"c?fn=\(\d+\) ([^']+)", line) for line in watched(*arguments, **until))
    return {general(match[1]) for match in found if match}


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers at once: JSON, or a stream of 50 events where it is asked for."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = b'data: {"id":"x","choices":[]}\n\n' * 50 if asked.get("stream") else b'{"id":"x","usage":{}}'
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def small_requests(port):
    """Each API's, whole and streamed."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for path in "/v1/chat/completions", "/v1/responses", "/v1/messages":
        for serial in range(2 * REQUESTS):
            text = f"Request {serial}: " + "look at the next file and say what you find. " * 40
            member = "input" if path.endswith("responses") else "messages"
            body = {"model": "m", "stream": serial % 2 == 1, member: [{"role": "user", "content": text}]}
            headers = {"content-type": "application/json", "authorization": "Bearer sk", "x-api-key": "sk"}
            connection.request("POST", path, json.dumps(body | {"max_tokens": 99}), headers)
            connection.getresponse().read()


def served(program):
    """The functions that small requests run, those first that take most; their names whole, with the hash: another
    instance of the same function need not be one of them."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    upstreams = {"openai": f"{here}/v1", "anthropic": here}
    found = watched(program, "--config", "proxy.toml", upstreams=upstreams, until="listening", then=small_requests)
    names, costs, name, is_call = {}, collections.Counter(), "", False
    for line in found:
        if match := re.match(r"(c?fn)=\((\d+)\)(?: ([^']+))?", line):
            names.setdefault(match[2], match[3])
            name = names[match[2]] if match[1] == "fn" else name
        elif line.startswith("calls="):
            is_call = True
        elif match := re.match(r"[+\-*\d]\S* (\d+)$", line):
            costs[re.sub(r"\.llvm\.\d+$", "", name)] += 0 if is_call else int(match[1])
            is_call = False
    return [name for name, cost in costs.most_common() if cost >= 6 * LEAST * REQUESTS]


def modules(name):
    """The mangled paths that a mangled name begins with, shortest first."""
    at, found = 3, []
    while name.startswith("_ZN") and (length := re.match(r"\d+", name[at:])):
        at += len(length[0]) + int(length[0])
        if at >= len(name) or name[at:].startswith("17h"):
            break
        found.append(name[:at])
    return found


def main(program):
    program = str(Path(program).resolve())
    sizes = collections.Counter()
    for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] in "tTwW":
            sizes[general(fields[3])] += int(fields[1], 16)
    start = ran(program, "--config", "proxy.toml", until="listening")
    demo = ran(program, "demo")
    # Those that run at start as well stand at the end, beside the others that do.
    often = sorted((name for name in served(program) if general(name) in sizes), key=lambda name: general(name) in start)
    often = [re.sub(r"[^\w.$]", "?", name) for name in often]
    lines = ["/* Made by start.py. */", "SECTIONS {", "  .text.often : {"]
    lines += [*(f"    *(.text.{name} .text.{name}.llvm.*)" for name in often), "  }"]
    for section, names in (("start", start), ("serve", {name for name in demo - start if "demo" not in name})):
        lines += [f"  .text.{section} : {{", *(f"    *(.text.{pattern})" for pattern in patterns(names, sizes)), "  }"]
    Path(__file__).with_name("start.ld").write_text("\n".join([*lines, "} INSERT BEFORE .text;", ""]))


def patterns(names, sizes):
    """What matches the sections of these functions. `sizes`: of all functions, in bytes."""
    names = {name for name in names if name in sizes and re.fullmatch(r"[\w.$*]+", name)}
    whole, part, count = collections.Counter(), collections.Counter(), collections.Counter()
    for name, size in sizes.items():
        for module in modules(name):
            whole[module] += size
            part[module] += size if name in names else 0
            count[module] += name in names
    mostly = {module for module in whole if part[module] >= WHOLE * whole[module] and count[module] >= 3}
    found = {next((f"{module}*" for module in modules(name) if module in mostly), name) for name in names}
    print(f"{len(names)} functions, {sum(sizes[name] for name in names)} bytes, {len(found)} patterns")
    return sorted(found)


main(*sys.argv[1:])
