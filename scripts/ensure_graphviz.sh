#!/usr/bin/env bash
# Finds Graphviz's `dot`, which draws plans; installs it where that is possible: as root, on a machine with apt-get.
#
#   scripts/ensure_graphviz.sh        # on failure: exit 1 and one clear message
#   scripts/ensure_graphviz.sh -q     # on failure: exit 1 and silence
set -euo pipefail

quiet=no
[ "${1:-}" = "-q" ] && quiet=yes

command -v dot >/dev/null && exit 0
"$(dirname "${BASH_SOURCE[0]}")/apt_install.sh" Graphviz graphviz && command -v dot >/dev/null && exit 0

if [ "$quiet" = no ]; then
    echo "Graphviz was not found: install it (Debian, Ubuntu: apt-get install graphviz)" >&2
fi
exit 1
