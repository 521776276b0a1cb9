#!/usr/bin/env bash
# look.sh WORK OUT SECONDS [--all]: a line every 20 s for SECONDS, or until all steps have ended; then models, results,
# tasks and labels as at most 8 files of 16 MiB in OUT, those that changed since the last look (--all: all of them).
set -euo pipefail
(($# > 2)) || {
  echo "usage: look.sh WORK OUT SECONDS [--all]" >&2
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
exec "$HOLD_PYTHON" -m bench.hold.look "$work" "$out" "$@"
