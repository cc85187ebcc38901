#!/usr/bin/env bash
# Asks an advisory service for known faults of the pinned packages, with a pip-audit in an environment of its own.
# Without a network, or without that tool, nothing is audited: that is said, and is no failure. A known fault is one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

not_audited() {
    echo "not audited: $1"
    exit 0
}

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv" >/dev/null 2>&1 || not_audited "no environment for pip-audit can be made"
timeout 120 "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 0 pip-audit >/dev/null 2>&1 \
    || not_audited "pip-audit cannot be installed"
timeout 300 "$folder/venv/bin/pip-audit" --requirement requirements.lock --no-deps --disable-pip --format json \
    --output "$folder/found.json" >"$folder/told" 2>&1
# Its exit code is 1 for a fault found, and for a service that does not answer: only the first leaves a report.
"$folder/venv/bin/python" - "$folder/found.json" <<'PYTHON' || exit 1
import json, sys
try:
    found = json.load(open(sys.argv[1]))["dependencies"]
except (OSError, ValueError, KeyError):
    print("not audited: the advisory service does not answer")
    sys.exit(0)
faulty = [(one["name"], one["version"], fault["id"]) for one in found for fault in one.get("vulns", ())]
skipped = [one for one in found if "skip_reason" in one]
if len(skipped) == len(found):
    print("not audited: the advisory service answers for no package" + "".join(f": {one['skip_reason']}" for one in skipped[:1]))
    sys.exit(0)
for name, version, fault in faulty:
    print(f"{name} {version} has a known fault: {fault}")
left_out = "; not audited: " + ", ".join(one["name"] for one in skipped) if skipped else ""
print(f"audited: {len(found) - len(skipped)} packages, {len(faulty)} known faults{left_out}")
sys.exit(bool(faulty))
PYTHON
