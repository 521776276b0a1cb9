# shellcheck shell=bash disable=SC2034
# Sourced by every step. MEASUREMENT_TARGET=cpu MEASUREMENT_SIZE=tiny tries the steps out without a GPU.
set -euo pipefail
python=${MEASUREMENT_PYTHON:-python3}
target=${MEASUREMENT_TARGET:-cuda}
size=${MEASUREMENT_SIZE:-full}
: "${MEASUREMENT_WORK:?}" "${MEASUREMENT_OUT:?}" "${MEASUREMENT_CORES:?}" "${MEASUREMENT_GPUS:?}" "${MEASUREMENT_SECONDS:?}"
results=$MEASUREMENT_WORK/results
mkdir -p "$MEASUREMENT_OUT"

# at_least N EXPRESSION: the value of an arithmetic expression, but at least N.
at_least() {
  local number=$(($2))
  echo $((number > $1 ? number : $1))
}
