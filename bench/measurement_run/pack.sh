#!/usr/bin/env bash
# pack.sh FOLDER: on a machine with network, puts into FOLDER what start.sh needs on one without: the sources of HEAD,
# wheels for CPython 3.12 on x86-64, and bubblewrap, the judge's sandbox. docs/measuring.md says more.
# --without-source: if the GPU machine has a checkout. --without WHEEL leaves one out (xllamacpp is the largest).
set -euo pipefail
folder=
source=1
without=()
while (($#)); do
  case $1 in
    --without-source) source=0 ;;
    --without) without+=("$2") && shift ;;
    *) folder=$1 ;;
  esac
  shift
done
[[ -n $folder ]] || {
  echo "usage: pack.sh FOLDER [--without-source] [--without WHEEL]..." >&2
  exit 2
}
mkdir -p "$folder"
folder=$(realpath "$folder")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${MEASUREMENT_PYTHON:-python3}

git rev-parse HEAD >"$folder/commit.txt"
rm -f "$folder/src.tar.xz"
((source == 0)) || git archive HEAD | xz -6 >"$folder/src.tar.xz"

# pip matches manylinux tags exactly, so all that a system with glibc 2.39 accepts are listed.
platforms=(--platform manylinux1_x86_64 --platform manylinux2010_x86_64 --platform manylinux2014_x86_64)
for minor in {17..39}; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
wanted=()
while read -r wheel; do
  name=${wheel%%[<>=]*}
  [[ " ${without[*]-} " == *" $name "* ]] || wanted+=("$wheel")
done < <(grep -v '^#' bench/measurement_run/wheels.txt)
rm -rf "$folder/wheels"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  --implementation cp --abi cp312 --abi abi3 --abi none "${platforms[@]}" --constraint constraints.txt \
  --dest "$folder/wheels" "${wanted[@]}"
"$python" bench/measurement_run/slim.py "$folder"/wheels/*.whl

if command -v apt-get >/dev/null; then
  mkdir -p "$folder/deb"
  rm -f "$folder"/deb/*.deb
  (cd "$folder/deb" && apt-get download bubblewrap libcap2 libselinux1 libpcre2-8-0 2>/dev/null)
else
  echo "no apt-get here: without bubblewrap the judge uses Landlock, where the kernel has it" >&2
fi
du -ab "$folder" | sort -n | awk '{ printf "%7.2f MiB  %s\n", $1 / 1048576, $2 }'
