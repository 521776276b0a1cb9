#!/usr/bin/env bash
# start.sh FOLDER WORK PLACEMENT...: on the GPU machine, unpacks what pack.sh put into FOLDER into WORK, starts the
# steps in the background and returns. A second call starts nothing twice, resumes what was killed: docs/measuring.md.
# MEASUREMENT_PYTHON: the interpreter (python3). MEASUREMENT_LIMITS="labels=300": time limits of steps in seconds.
# MEASUREMENT_TARGET=cpu MEASUREMENT_SIZE=tiny tries it out without a GPU.
set -euo pipefail
(($# > 2)) || {
  echo "usage: start.sh FOLDER WORK GPU[+GPU][@CORES]:STEP[,STEP]..." >&2
  exit 2
}
folder=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
shift 2
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
python=${MEASUREMENT_PYTHON:-python3}

PYTHONPATH=$root "$python" -m bench.measurement_run.run --check "$work" "$@"
# Only one start at a time. The background process does not inherit the lock.
exec 9>"$work/start.lock"
flock 9

if [[ ! -d $work/src ]]; then
  rm -rf "$work/src.new" "$work/site" "$work/deb"
  mkdir -p "$work/src.new" "$work/site" "$work/deb"
  if [[ -f $folder/src.tar.xz ]]; then
    "$python" -m tarfile -e "$folder/src.tar.xz" "$work/src.new"
  else
    tar -C "$root" --exclude=./.git --exclude=./.venv --exclude=node_modules --exclude=__pycache__ \
      --exclude="./$(realpath --relative-to="$root" "$folder")" -c . |
      tar -C "$work/src.new" -x
  fi
  wheels=("$folder"/wheels/*.whl)
  [[ ! -f ${wheels[0]} ]] || "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
    --no-compile --no-cache-dir --target "$work/site" "${wheels[@]}"
  for package in "$folder"/deb/*.deb; do
    [[ ! -f $package ]] || dpkg -x "$package" "$work/deb"
  done
  mv "$work/src.new" "$work/src"
fi

# bubblewrap from another system. It uses the libraries that come with it only if it does not run with the local ones.
bwrap=$work/deb/usr/bin/bwrap
if ! command -v bwrap >/dev/null && [[ -x $bwrap ]]; then
  mkdir -p "$work/bin"
  if "$bwrap" --version >/dev/null 2>&1; then
    ln -sf "$bwrap" "$work/bin/bwrap"
  else
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' \
      "$work/deb/lib/x86_64-linux-gnu:$work/deb/usr/lib/x86_64-linux-gnu" "$bwrap" >"$work/bin/bwrap"
    chmod +x "$work/bin/bwrap"
  fi
fi

src=$work/src
cat >"$work/env.sh" <<END
export PYTHONPATH=$(printf %q "$src:$src/training:$src/lsp:$src/tui:$work/site${PYTHONPATH:+:$PYTHONPATH}")
export PATH=$(printf %q "$work/bin:$PATH")
export KERNEL_ASSISTANT_HOME=$(printf %q "$work/home/user")
export XDG_CACHE_HOME=$(printf %q "$work/cache")
export HF_HOME=$(printf %q "$work/cache/huggingface") HF_HUB_OFFLINE=1
export TORCHINDUCTOR_CACHE_DIR=$(printf %q "$work/cache/inductor") TRITON_CACHE_DIR=$(printf %q "$work/cache/triton")
export MEASUREMENT_PYTHON=$(printf %q "$(command -v "$python")")
export MEASUREMENT_TARGET=${MEASUREMENT_TARGET:-cuda} MEASUREMENT_SIZE=${MEASUREMENT_SIZE:-full} MEASUREMENT_LIMITS=$(printf %q "${MEASUREMENT_LIMITS:-}")
END
# shellcheck source=/dev/null
source "$work/env.sh"
mkdir -p "$work/logs" "$work/state" "$work/cache"
[[ ! -f $folder/commit.txt ]] || cp "$folder/commit.txt" "$work/state/"
cd "$src"
echo "sandboxes: $("$python" -c 'from kernel_assistant.sandbox.choose import probe
print(", ".join(f"{one.backend} {one.reason or chr(111) + chr(107)}" for one in probe()))')"
touch "$work/logs/run.log"
known=$(wc -l <"$work/logs/run.log")
setsid nohup "$python" -m bench.measurement_run.run "$work" "$@" >>"$work/logs/run.log" 2>&1 9>&- </dev/null &
# The first line of the log says whether the steps run.
for _ in {1..100}; do
  [[ $(wc -l <"$work/logs/run.log") == "$known" ]] || break
  sleep 0.1
done
tail -n "+$((known + 1))" "$work/logs/run.log"
