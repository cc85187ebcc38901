#!/usr/bin/env bash
# Finds Graphviz's `dot`, which draws plans; installs it where that is possible: as root, on a machine with apt-get.
#
#   scripts/ensure_graphviz.sh        # on failure: exit 1 and one clear message
#   scripts/ensure_graphviz.sh -q     # on failure: exit 1 and silence
set -euo pipefail

quiet=no
[ "${1:-}" = "-q" ] && quiet=yes

install_graphviz() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Graphviz was not found; installing it with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null 2>&1 || true # the lists at hand may do
    apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends graphviz >/dev/null 2>&1
}

command -v dot >/dev/null && exit 0
install_graphviz && command -v dot >/dev/null && exit 0

if [ "$quiet" = no ]; then
    echo "Graphviz was not found: install it (Debian, Ubuntu: apt-get install graphviz)" >&2
fi
exit 1
