#!/usr/bin/env bash
# Runs every test. Arguments go to pytest.
#
# Those that need a JVM, and before them those that kill processes, run beside the others, in sessions of their own: each
# mostly waits for one core. Without Java all tests that need no JVM run; then one line says how many did not, and the exit
# code is 1: a run that left something out must never look like a run that passed.
set -euo pipefail

python=.venv/bin/python
order=(style unit golden scenarios property paper contract)

# A folder that is not in the list above still runs, at the end. tests/services needs servers and is started by itself.
folders=()
for name in "${order[@]}"; do
    [ -d "tests/$name" ] && folders+=("tests/$name")
done
for folder in tests/*/; do
    name="$(basename "$folder")"
    case " ${order[*]} sim spark support services __pycache__ " in
    *" $name "*) ;;
    *) folders+=("tests/$name") ;;
    esac
done

if ! JAVA_HOME="$(scripts/ensure_java.sh -q)"; then
    export VIEWKEEPER_JAVA=none
    "$python" -m pytest "${folders[@]}" tests/sim "$@" || true
    left_out="$("$python" -m pytest tests/spark --collect-only -q 2>/dev/null | grep -c '::' || true)"
    echo "Java 17 or newer was not found, so $left_out tests that need Spark did not run" \
        "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless)" >&2
    exit 1
fi
export JAVA_HOME

# 5: nothing was chosen, which is all right when another session had something to run.
told="$(mktemp)"
(
    killed=0 jobs=0
    "$python" -m pytest tests/sim "$@" || killed=$?
    "$python" -m pytest tests/spark "$@" || jobs=$?
    [ "$killed" -eq 5 ] && [ "$jobs" -eq 5 ] && exit 5
    { [ "$killed" -eq 0 ] || [ "$killed" -eq 5 ]; } && { [ "$jobs" -eq 0 ] || [ "$jobs" -eq 5 ]; }
) >"$told" 2>&1 &
beside=$!
trap 'kill "$beside" $(pgrep -P "$beside") 2>/dev/null || true; rm -f "$told"' EXIT

here=0
"$python" -m pytest "${folders[@]}" "$@" || here=$?
there=0
wait "$beside" || there=$?
echo
echo "tests that kill processes, and tests that need Spark:"
cat "$told"
[ "$here" -eq 5 ] && [ "$there" -eq 5 ] && exit 5
{ [ "$here" -eq 0 ] || [ "$here" -eq 5 ]; } && { [ "$there" -eq 0 ] || [ "$there" -eq 5 ]; }
