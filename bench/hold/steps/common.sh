# shellcheck shell=bash disable=SC2034
# What every step begins with. HOLD_TARGET=cpu HOLD_SIZE=tiny tries the steps out where there is no GPU.
set -euo pipefail
python=${HOLD_PYTHON:-python3}
target=${HOLD_TARGET:-cuda}
size=${HOLD_SIZE:-full}
: "${HOLD_WORK:?}" "${HOLD_OUT:?}" "${HOLD_CORES:?}" "${HOLD_GPUS:?}" "${HOLD_SECONDS:?}"
results=$HOLD_WORK/results
mkdir -p "$HOLD_OUT"

# at_least N COMMAND...: a share of the cores, but not less than N.
at_least() {
  local number=$(($2))
  echo $((number > $1 ? number : $1))
}
