#!/bin/sh
# Makes build/bench-peers/venv with the peers' clients and NATS; Kafka and BookKeeper are jars (install_java.sh); Redis
# and RabbitMQ are Debian packages, which are used when they are there and installed when that is possible. Whatever
# cannot be had is left out with a word: exit code 0.
set -u
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
HERE=$ROOT/bench/peers
VENV=$ROOT/build/bench-peers/venv
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}

say() { echo "bench/peers: $*" >&2; }

if ! cmp -s "$HERE/requirements.txt" "$VENV/.installed"; then
    mkdir -p "$VENV"
    if "$PYTHON" -m venv "$VENV" && "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r "$HERE/requirements.txt"; then
        cp "$HERE/requirements.txt" "$VENV/.installed"
    else
        say "the peers' clients cannot be installed: no peer is measured"
        exit 0
    fi
fi

# The workload and the figures are the command's own.
for packages in "$VENV"/lib/python3*/site-packages; do echo "$ROOT/cli" >"$packages/rangelog_cli.pth"; done

"$HERE/install_java.sh"

missing=
command -v redis-server >/dev/null || missing="$missing redis-server"
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing="$missing rabbitmq-server"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "not installed, so not measured:$missing (apt-get install --no-install-recommends$missing)"
    exit 0
fi
# Debian starts a service as soon as its package is installed; these are wanted as programs only.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e "$policy" ]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
fi
# shellcheck disable=SC2086
{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; } \
    >"$ROOT/build/bench-peers/apt.log" 2>&1 || say "cannot be installed, so not measured:$missing (build/bench-peers/apt.log)"
[ -z "$made" ] || rm -f "$policy"
exit 0
