#!/usr/bin/env python3
"""Writes link/start.ld: a linker script that puts first what runs until the proxy listens, then what runs in the demo.

    python3 link/start.py target/release/compactproxy
"""
import collections, os, re, subprocess, sys, tempfile, time
from pathlib import Path

# A module of which so much runs is named as a whole.
WHOLE = 0.4
CONFIG = """
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
[[upstream]]
name = "openai"
base_url = "https://api.openai.com/v1"
[[upstream]]
name = "anthropic"
base_url = "http://127.0.0.1:9"
[tool_result_eviction]
[truncate_args]
[prune]
[compaction]
[overflow_recovery]
[sessions]
[[window]]
model = "m"
input = 48_000
"""


def general(name):
    """A mangled name without its hash, which changes with the compiler."""
    return re.sub(r"17h[0-9a-f]{16}E$", "17h*", re.sub(r"\.llvm\.\d+$", "", name))


def ran(program, *arguments, until=None):
    """The functions that run until the program ends, or has said `until`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "proxy.toml").write_text(CONFIG)
        command = ["valgrind", "--tool=callgrind", "--demangle=no", "--callgrind-out-file=out", program]
        # The proxy begins anew unless this is set.
        environment = os.environ | {"MIMALLOC_PURGE_DELAY": "30"}
        with open(Path(folder, "log"), "w+") as log:
            running = subprocess.Popen([*command, *arguments], cwd=folder, env=environment, stdout=log, stderr=log)
            while running.poll() is None:
                time.sleep(0.2)
                if until and until in Path(folder, "log").read_text():
                    time.sleep(1)
                    running.terminate()
                    running.wait()
        lines = Path(folder, "out").read_text(errors="replace").splitlines()
    found = (re.match(r"c?fn=\(\d+\) ([^']+)", line) for line in lines)
    return {general(match[1]) for match in found if match}


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
    lines = ["/* Made by start.py. */", "SECTIONS {"]
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
