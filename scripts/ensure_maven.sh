#!/usr/bin/env bash
# Finds Maven, which fetches the jars of real servers for tests; installs it where that is possible: as root, on a machine with
# apt-get. On failure: exit 1 and silence; the caller says what it needed Maven for.
set -euo pipefail

install_maven() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Maven was not found; installing it with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null 2>&1 || true # the lists at hand may do
    apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends maven >/dev/null 2>&1
}

command -v mvn >/dev/null && exit 0
install_maven && command -v mvn >/dev/null && exit 0
exit 1
