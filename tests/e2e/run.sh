#!/usr/bin/env bash
# End-to-end suites with real clients: unmodified SDKs and agents through the release build of the proxy to the
# strict embedded provider (`matrix` through a debug build). Only loopback, free ports, a folder of its own; nothing
# outlives it.
# Needs `cargo build --release` and `cargo build --bins --examples` (the provider's speed does not matter, and the tests
# have built it); COMPACTPROXY_BUILD=target/debug runs another build of the proxy.
# Usage: run.sh [SUITE…], all of them when none is named.
set -euo pipefail
cd "$(dirname "$0")/../.."

suites=("$@")
[[ $# -gt 0 ]] || suites=(openai_sdk responses_sdk anthropic_sdk matrix openai_agents codex mcp_client)
limit_seconds=${COMPACTPROXY_E2E_SECONDS:-240}  # for each suite
build=${COMPACTPROXY_BUILD:-target/release}

for program in "$build/compactproxy" target/debug/compactproxy target/debug/examples/strict_provider; do
    if [[ ! -x $program ]]; then
        echo "missing $program: cargo build --release && cargo build --bins --examples" >&2
        exit 2
    fi
done
for suite in "${suites[@]}"; do
    if [[ ! -f tests/e2e/$suite.py ]]; then
        echo "no such suite: $suite" >&2
        exit 2
    fi
done
tests/e2e/install.sh

# All talk is on loopback, whatever the machine's proxies are.
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d "$PWD/target/e2e.XXXXXX")  # configuration, state, logs
export COMPACTPROXY_E2E_RUN=$work            # marks every process that the run starts
running=

# What the run has started and left behind: clients may give their children process groups of their own.
survivors() (
    unset COMPACTPROXY_E2E_RUN  # the commands here are not among them
    grep -lsz "^COMPACTPROXY_E2E_RUN=$work\$" /proc/[0-9]*/environ | cut -d / -f 3 || true
)

# Waits a moment for what is about to end.
settled() {
    for _ in {1..20}; do
        left=$(survivors)
        [[ -n $left ]] || return 0
        sleep 0.1
    done
    return 1
}

cleanup() {
    status=$?
    # `timeout` leads a process group of its own.
    if [[ -n $running ]] && kill -- "-$running" 2>/dev/null; then
        wait "$running" || true
    fi
    for pid in $(survivors); do
        kill -9 "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

failed=()
for suite in "${suites[@]}"; do
    printf '\n-- %s\n' "$suite"
    mkdir "$work/$suite"
    began=$SECONDS status=0
    timeout --kill-after=5 "$limit_seconds" target/e2e-venv/bin/python "tests/e2e/$suite.py" "$work/$suite" &
    running=$!
    wait "$running" || status=$?
    running=
    echo "   $suite took $((SECONDS - began)) s"
    if [[ $status -ne 0 ]]; then
        [[ $status -ne 124 ]] || echo "$suite was given up after $limit_seconds s" >&2
        failed+=("$suite")
        printf '\nthe proxy said:\n' >&2
        tail -n 40 "$work/$suite/proxy.log" 2>/dev/null | cut -c 1-300 >&2 || true
    fi
    if ! settled; then
        echo "$suite left processes behind:" $left >&2
        failed+=("$suite")
    fi
done
if [[ ${#failed[@]} -gt 0 ]]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
