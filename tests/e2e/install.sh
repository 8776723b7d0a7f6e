#!/usr/bin/env bash
# Installs the clients of the end-to-end suites into target/, through pip and npm; made once, and again when the
# pins change.
set -euo pipefail
cd "$(dirname "$0")/../.."
limit_seconds=600  # for each

# Whether what stands in folder $1 was made from the pins in file $2.
made() { cmp -s "$2" "$1/made-from"; }

debian() { apt-get update -q && apt-get install -y -q "$1"; }

install_python() {
    # Debian keeps what `venv` needs in a package of its own.
    python3 -c 'import ensurepip' 2>/dev/null || debian python3-venv || return
    python3 -m venv "$1" || return
    timeout "$limit_seconds" "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2"
}

install_node() {
    command -v npm >/dev/null || debian npm || return
    mkdir -p "$1" || return
    cp "$2" "$1/package.json" || return
    (cd "$1" && timeout "$limit_seconds" npm install --no-package-lock --no-audit --no-fund --loglevel=error)
}

# make NAME FOLDER PINS: with what `install_NAME` does.
make() {
    if made "$2" "$3"; then
        return
    fi
    echo "installing what $3 names into $2"
    rm -rf "$2"
    if ! "install_$1" "$2" "$3"; then
        rm -rf "$2"
        echo "could not install what $3 names" >&2
        exit 2
    fi
    cp "$3" "$2/made-from"
}

make python target/e2e-venv tests/e2e/requirements.txt
make node target/e2e-node tests/e2e/package.json
