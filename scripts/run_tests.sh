#!/usr/bin/env bash
# Runs the tests, with VIEWKEEPER_DEEP=1 the deep ones too. There are two workers more than cores, for many tests wait for other
# processes. Arguments go to pytest.
#
# Without Java all tests that need no JVM run, without Graphviz all that draw nothing; then a line says what did not, and the
# exit code is 1: a run that left something out must never look like a run that passed.
set -euo pipefail

# Hundreds of tests start Python anew, and each worker imports every test: what one process compiled serves the others.
unset PYTHONDONTWRITEBYTECODE

# tests/services needs servers and is started by itself.
pytest=(.venv/bin/python -m pytest --ignore tests/services)
workers=(-n "$(($(getconf _NPROCESSORS_ONLN) + 2))" --maxprocesses 4 --no-loadscope-reorder --durations 10)

missing=()
scripts/ensure_graphviz.sh -q ||
    missing+=("Graphviz was not found, so the tests that draw did not run (Debian, Ubuntu: apt-get install graphviz)")
if JAVA_HOME="$(scripts/ensure_java.sh -q)"; then
    export JAVA_HOME
    [ ${#missing[@]} -gt 0 ] || exec "${pytest[@]}" "${workers[@]}" "$@"
else
    export VIEWKEEPER_JAVA=none
    left_out="$("${pytest[@]}" tests/spark --collect-only -q 2>/dev/null | grep -c '::' || true)"
    workers+=(--ignore tests/spark)
    missing+=("Java 17 or newer was not found, so $left_out tests that need Spark did not run (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)")
fi
"${pytest[@]}" "${workers[@]}" "$@" || true
printf '%s\n' "${missing[@]}" >&2
exit 1
