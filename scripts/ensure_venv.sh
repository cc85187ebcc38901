#!/usr/bin/env bash
# Makes .venv with the pinned packages and ViewKeeper itself in it (editable), then touches the stamp given as $1.
#
# The Makefile calls this only if the stamp is older than pyproject.toml or requirements.lock. Its name belongs to
# this directory: a tree that was moved or copied gets a new environment, because scripts in .venv hold absolute paths.
set -euo pipefail

stamp="$1"

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    echo "Python 3.11 or newer was not found: install it, or name it with make PYTHON=/path/to/python" >&2
    return 1
}

# Debian and Ubuntu keep the venv module in a package of its own.
install_venv_module() {
    local version
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    version="$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    echo "Python's venv module is missing; installing it with apt-get" >&2
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends "python$version-venv" >/dev/null 2>&1
}

make_venv() {
    local python
    python="$(find_python)"
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && ! install_venv_module "$python"; then
        echo "Python's venv module was not found: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2
        return 1
    fi
    echo "making .venv with $("$python" --version); this downloads and unpacks about 1 GB of packages and takes some minutes"
    "$python" -m venv --clear .venv
}

# The lock has everything, with hashes; pip takes no hash for ViewKeeper itself, which is this directory.
install_packages() {
    local pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check)
    "${pip[@]}" install "$@" --require-hashes --no-deps -r requirements.lock \
        && "${pip[@]}" install "$@" --no-deps -e . && "${pip[@]}" check
}

if [ ! -e "$stamp" ] || ! new_enough .venv/bin/python; then
    make_venv
fi
# pip takes a download that was cut off for a whole one and fails on its hash; such a file must not come from the cache again.
echo "installing the pinned packages"
if ! install_packages; then
    echo "installing them failed; trying again without pip's cache" >&2
    sleep 10
    install_packages --no-cache-dir || { sleep 30 && install_packages --no-cache-dir; }
fi
touch "$stamp"
