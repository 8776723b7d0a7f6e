#!/usr/bin/env bash
# End-to-end suite with real clients: an unmodified openai SDK through the release build of the proxy to the
# strict embedded provider. Only loopback, free ports, a folder of its own; nothing outlives it.
# Needs `cargo build --release` and `cargo build --examples` (the provider's speed does not matter, and the tests have
# built it); COMPACTPROXY_BUILD=target/debug runs another build of the proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."

limit_seconds=${COMPACTPROXY_E2E_SECONDS:-120}
build=${COMPACTPROXY_BUILD:-target/release}
venv=target/e2e-venv
requirements=tests/e2e/requirements.txt

for program in "$build/compactproxy" target/debug/examples/strict_provider; do
    if [[ ! -x $program ]]; then
        echo "missing $program: cargo build --release && cargo build --examples" >&2
        exit 2
    fi
done

# Made once; made again when the pins change.
if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    rm -rf "$venv"
    # Debian keeps what `venv` needs in a package of its own.
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        apt-get update -q && apt-get install -y -q python3-venv
    fi
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    cp "$requirements" "$venv/requirements.txt"
fi

# All talk is on loopback, whatever the machine's proxies are.
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)  # configuration, state, logs
suite=
cleanup() {
    status=$?
    # `timeout` leads a process group of its own, in which all that the suite started is.
    if [[ -n $suite ]] && kill -- "-$suite" 2>/dev/null; then
        wait "$suite" || true
    fi
    if [[ $status -ne 0 && -e $work/proxy.log ]]; then
        printf '\nthe proxy said:\n' >&2
        tail -n 40 "$work/proxy.log" | cut -c 1-300 >&2
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

timeout --kill-after=5 "$limit_seconds" "$venv/bin/python" tests/e2e/openai_sdk.py "$work" &
suite=$!
wait "$suite"
