#!/usr/bin/env bash
# Finds Maven, which fetches the jars of real servers for tests; installs it where that is possible: as root, on a machine with
# apt-get. On failure: exit 1 and silence; the caller says what it needed Maven for.
set -euo pipefail

command -v mvn >/dev/null && exit 0
"$(dirname "${BASH_SOURCE[0]}")/apt_install.sh" Maven maven && command -v mvn >/dev/null && exit 0
exit 1
