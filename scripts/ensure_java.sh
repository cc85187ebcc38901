#!/usr/bin/env bash
# Finds Java 17 or newer for Spark and prints its home directory; installs it where that is possible.
#
#   JAVA_HOME="$(scripts/ensure_java.sh)"        # on failure: exit 1 and one clear message
#   JAVA_HOME="$(scripts/ensure_java.sh -q)"     # on failure: exit 1 and silence
#
# Looked at in this order: JAVA_HOME, `java` on PATH, the system's usual directories. If none is new enough and we are
# root on a machine with apt-get, a headless JRE is installed. VIEWKEEPER_JAVA=none pretends that nothing was found and
# installs nothing, so that the way without Java can be tried on any machine.
set -euo pipefail

java_min=17
quiet=no
[ "${1:-}" = "-q" ] && quiet=yes

# Prints the home of the given java binary if it runs and is new enough.
home_if_new_enough() {
    local settings version major
    [ -x "$1" ] || return 1
    settings="$("$1" -XshowSettings:properties -version 2>&1)" || return 1
    version="$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")"
    major="${version#1.}" # Java 8 calls itself 1.8
    major="${major%%.*}"
    [[ "$major" =~ ^[0-9]+$ ]] && [ "$major" -ge "$java_min" ] || return 1
    sed -n 's/^ *java\.home = //p' <<<"$settings"
}

find_java() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        if [ -n "$candidate" ] && home_if_new_enough "$candidate"; then
            return 0
        fi
    done
    return 1
}

# Debian 12 and Ubuntu have 17; newer Debian releases have only a later one, which serves as well.
install_java() {
    local package
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Java $java_min was not found; installing it with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null 2>&1 || true # the lists at hand may do
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        if apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends "$package" >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

if [ "${VIEWKEEPER_JAVA:-}" != none ]; then
    find_java && exit 0
    install_java && find_java && exit 0
fi

if [ "$quiet" = no ]; then
    echo "Java $java_min or newer was not found: install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)" \
        "or point JAVA_HOME at it" >&2
fi
exit 1
