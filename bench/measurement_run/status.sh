#!/usr/bin/env bash
# status.sh WORK OUT SECONDS [--all]: prints a line every 20 s for SECONDS, or until all steps have ended. Then writes
# models, results, tasks and labels to OUT, as at most 8 files of 16 MiB: those that changed since the last call, or all
# with --all.
set -euo pipefail
(($# > 2)) || {
  echo "usage: status.sh WORK OUT SECONDS [--all]" >&2
  exit 2
}
work=$(realpath "$1")
out=$(realpath -m "$2")
shift 2
[[ -f $work/env.sh ]] || {
  echo "nothing was started in $work: start.sh" >&2
  exit 2
}
# shellcheck source=/dev/null
source "$work/env.sh"
cd "$work/src"
exec "$MEASUREMENT_PYTHON" -m bench.measurement_run.status "$work" "$out" "$@"
