#!/usr/bin/env bash
# Installs a Debian package where that is possible: as root, on a machine with apt-get. On failure: exit 1 and silence.
#
#   scripts/apt_install.sh Graphviz graphviz        # its name for people, and the package
set -euo pipefail

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
echo "$1 was not found; installing it with apt-get" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null 2>&1 || true # the lists at hand may do
apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends "$2" >/dev/null 2>&1
