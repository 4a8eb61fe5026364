#!/usr/bin/env bash
# Runs a short chaos with each fault that exact limits die of, planted in the gateways by its name, and fails when a run
# finds nothing wrong: then its checks could not find that fault in a release either.
#   MINUTES  how long each run lasts (1.5)
#   SEED     what gives its course (3)
set -euo pipefail
cd "$(dirname "$0")/.."

faults=(
  settle-skipped-on-client-gone
  given-back-twice
  lost-taken-for-won
  unknown-taken-for-lost
  lease-used-after-expiry
  released-early
  slot-leaked-on-panic
  stale-read-admitted
  window-fixed-at-settle
  duplicate-event-counted
)
unfound=()
for fault in "${faults[@]}"; do
  code=0
  report=$(target/debug/chaos-run --minutes "${MINUTES:-1.5}" --seed "${SEED:-3}" --faults limits --planted "$fault" \
    2>/dev/null) || code=$?
  case $code in
    0)
      unfound+=("$fault")
      echo "$fault: not found"
      ;;
    1)
      rows=$(grep -c '"pass": false' <<<"$report" || true)
      echo "$fault: found, $((rows - 1)) rows are red"
      ;;
    *)
      echo "$fault: the run itself failed with $code" >&2
      exit "$code"
      ;;
  esac
done
if [ ${#unfound[@]} -gt 0 ]; then
  echo "not found: ${unfound[*]}" >&2
  exit 1
fi
