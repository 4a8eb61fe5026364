#!/usr/bin/env bash
# Runs tests: with nextest where it is installed, else with cargo's own runner, which takes the same arguments. Words
# that are no options are parts of names: a test runs when its name has one of them.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo="${CARGO:-cargo}"
if "$cargo" nextest --version >/dev/null 2>&1; then
  # Tests of whole nodes wait most of their time: two for each processor keep it half busy, where not all are clusters.
  each=2
  if [ "${WAYBILL_TEST_CLUSTER:-}" = 1 ]; then
    each=1
  fi
  threads="${TEST_THREADS:-$((each * $(getconf _NPROCESSORS_ONLN)))}"
  exec "$cargo" nextest run --no-fail-fast --test-threads "$threads" "$@"
fi
options=()
names=()
while [ $# -gt 0 ]; do
  case "$1" in
    -p | --test) options+=("$1" "$2"); shift 2 ;;
    -*) options+=("$1"); shift ;;
    *) names+=("$1"); shift ;;
  esac
done
# Each system test starts whole nodes.
exec "$cargo" test --no-fail-fast "${options[@]}" -- --test-threads "${TEST_THREADS:-2}" "${names[@]}"
