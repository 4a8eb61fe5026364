#!/bin/sh
# Builds the product and the benchmark programs and compares Waybill with nginx (if installed), a bare proxy and no proxy,
# calls with limits, idempotency keys and sessions with plain ones (l16 of c16: at most 1.1 times the CPU),
# and a stream that it translates (Messages from chat, case t16) with the same one passing (s16: at most 2.5 times the CPU),
# then a gateway and a router over NATS with one node that is both, and measures the ledger on PostgreSQL
# (scripts/setup.sh nats postgres).
# Arguments go to the runner: --quick, --rounds N, --secs S, --only SYSTEM, --case NAME, --events N, --idle-streams N,
# --realtime, --strict.
# BENCH_BUILD=0 takes the programs as they are.
set -eu
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
if [ "${BENCH_BUILD:-1}" != 0 ]; then
  cargo build --release -p node --bin waybill
  cargo build --release -p system-tests \
    --bin bench-mock --bin bench-load --bin bench-bare --bin bench-run
fi

# An idle stream takes two files of the proxy; 9,000 of them need 18,000 and some more.
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
files="$(ulimit -n)"
streams=9000
if [ "$files" != unlimited ] && [ "$files" -lt 18500 ]; then
  streams=$(( (files - 500) / 2 ))
  [ "$streams" -gt 0 ] || streams=0
  echo "only $files open files allowed: $streams idle streams instead of 9000" >&2
fi
case " $* " in
  *" --idle-streams"* | *" --quick "* | *" --help "*) ;;
  *) set -- "$@" --idle-streams "$streams" ;;
esac

case " $* " in
  *" --out"* | *" --help "*) ;;
  *) set -- "$@" --out "$target/bench/report.json" ;;
esac

exec "$target/release/bench-run" "$@"
