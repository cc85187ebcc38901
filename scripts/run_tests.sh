#!/usr/bin/env bash
# Runs the tests of every folder; with VIEWKEEPER_DEEP=1 the deep ones too. Arguments go to pytest.
#
# Each folder of tests is a pytest session of its own, and two run at a time, because each mostly waits for one core: one lane
# takes the folders from the first to the last and shows what they print; the other takes them from the last to the first,
# and its output comes in the end. They meet where they meet.
#
# Without Java all tests that need no JVM run; then one line says how many did not, and the exit code is 1: a run that left
# something out must never look like a run that passed.
set -euo pipefail

python=.venv/bin/python

# A folder that is not named here still runs. tests/services needs servers and is started by itself.
folders=(style unit golden scenarios paper contract)
last=(property random_views sim spark)
for folder in tests/*/; do
    name="$(basename "$folder")"
    case " ${folders[*]} ${last[*]} support services __pycache__ " in
    *" $name "*) ;;
    *) folders+=("$name") ;;
    esac
done
folders+=("${last[@]}")

if ! JAVA_HOME="$(scripts/ensure_java.sh -q)"; then
    export VIEWKEEPER_JAVA=none
    unset "folders[-1]"
    "$python" -m pytest "${folders[@]/#/tests/}" "$@" || true
    left_out="$("$python" -m pytest tests/spark --collect-only -q 2>/dev/null | grep -c '::' || true)"
    echo "Java 17 or newer was not found, so $left_out tests that need Spark did not run" \
        "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless)" >&2
    exit 1
fi
export JAVA_HOME

told="$(mktemp -d)"

# Those of the folders named first that nobody has taken, up to `--`; what follows goes to pytest.
lane() {
    local names=()
    while [ "$1" != -- ]; do
        names+=("$1")
        shift
    done
    shift
    for name in "${names[@]}"; do
        [ -d "tests/$name" ] && mkdir "$told/$name" 2>/dev/null || continue
        echo "no end of $name" >"$told/$name/code"
        local code=0
        "$python" -m pytest "tests/$name" "$@" || code=$?
        echo "$code" >"$told/$name/code"
    done
}

backwards=()
for name in "${folders[@]}"; do
    backwards=("$name" "${backwards[@]}")
done
lane "${backwards[@]}" -- "$@" >"$told/beside" 2>&1 &
beside=$!
trap 'kill "$beside" $(pgrep -P "$beside") 2>/dev/null || true; rm -rf "$told"' EXIT
lane "${folders[@]}" -- "$@"
wait "$beside"
echo
echo "and beside these:"
cat "$told/beside"

# 5: nothing was chosen, which is all right when another session had something to run.
codes=" $(cat "$told"/*/code | sort -u | tr '\n' ' ')"
echo "pytest ended with:$codes"
[ "$codes" = " 5 " ] && exit 5
[ "$codes" = " 0 " ] || [ "$codes" = " 0 5 " ]
