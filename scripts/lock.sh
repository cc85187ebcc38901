#!/usr/bin/env bash
# Writes the hashes of all files of the pinned versions, for every platform, into requirements.lock, with a uv in an environment
# of its own. Versions and comments stay as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
grep -oE '^[A-Za-z0-9._-]+==[^ \\]+' requirements.lock >"$folder/pins"
"$folder/venv/bin/uv" pip compile --quiet --generate-hashes --no-deps --no-annotate --no-header --no-emit-index-url \
    --output-file "$folder/hashed" "$folder/pins" >/dev/null
{ grep '^#' requirements.lock && cat "$folder/hashed"; } >"$folder/lock"
cat "$folder/lock" >requirements.lock
echo "requirements.lock: $(wc -l <"$folder/pins") packages, $(grep -c -- --hash= requirements.lock) hashes"
