#!/usr/bin/env bash
# Runs every test in one pytest session, the quickest and plainest first. Arguments go to pytest.
#
# Without Java all tests that need no JVM run; then one line says how many did not, and the exit code is 1: a run that
# left something out must never look like a run that passed.
set -euo pipefail

python=.venv/bin/python
order=(style unit golden scenarios property paper sim contract spark)

# A folder that is not in the list above still runs, at the end. tests/services needs servers and is started by itself.
folders=()
for name in "${order[@]}"; do
    [ -d "tests/$name" ] && folders+=("tests/$name")
done
for folder in tests/*/; do
    name="$(basename "$folder")"
    case " ${order[*]} support services __pycache__ " in
    *" $name "*) ;;
    *) folders+=("tests/$name") ;;
    esac
done

if JAVA_HOME="$(scripts/ensure_java.sh -q)"; then
    export JAVA_HOME
    exec "$python" -m pytest "${folders[@]}" "$@"
fi

export VIEWKEEPER_JAVA=none
"$python" -m pytest "${folders[@]}" -m "not spark" "$@" || true
left_out="$("$python" -m pytest "${folders[@]}" -m spark --collect-only -q 2>/dev/null | grep -c '::' || true)"
echo "Java 17 or newer was not found, so $left_out tests that need Spark did not run" \
    "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless)" >&2
exit 1
