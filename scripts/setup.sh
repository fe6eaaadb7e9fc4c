#!/usr/bin/env bash
# Installs what a build of XPipe needs and is not there yet: the Debian packages of
# debian-packages.txt, and LibTorch, unpacked from the wheels of libtorch-requirements.txt into a
# cache outside the clone; on demand what the notebooks run on. `./dev setup` is its front door.
#
# There is no stamp to go stale. Packages are looked up in dpkg's database, and LibTorch's folder
# carries the hash of its requirements in its name and appears by one rename once it is whole, so a
# run that was interrupted anywhere is simply run again: wheels that arrived are kept meanwhile. The
# same holds for the notebooks' virtual environment.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages=$here/debian-packages.txt
requirements=$here/libtorch-requirements.txt
notebook_requirements=$here/notebook-requirements.txt
cache=${XPIPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/xpipe}

usage() {
  cat <<EOF
usage: scripts/setup.sh [--no-torch] [--notebooks] [--print-torch-root] [--print-notebook-python]

  --no-torch               leave LibTorch out: all but the real executor builds without it
  --notebooks              also what the notebooks run on (75 MB to download, 400 MB unpacked)
  --print-torch-root       print the folder LibTorch is (or would be) unpacked in, and do nothing
  --print-notebook-python  print the Python that runs (or would run) the notebooks, and do nothing

The cache is \$XPIPE_CACHE, else \${XDG_CACHE_HOME:-~/.cache}/xpipe.
EOF
}

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

hash_of() { sed "s/#.*//;/^$/d" "$1" | sha256sum | cut -c1-12; }

torch_root() {
  local version
  version=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$requirements")
  printf '%s/libtorch-%s-%s\n' "$cache" "$version" "$(hash_of "$requirements")"
}

notebook_root() { printf '%s/notebooks-%s\n' "$cache" "$(hash_of "$notebook_requirements")"; }

missing_packages() {
  local wanted
  wanted=$(sed 's/#.*//' "$packages" | tr -s '[:space:]' '\n' | sed '/^$/d')
  # shellcheck disable=SC2086  # one word a package
  comm -23 <(sort <<< "$wanted") \
    <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $wanted 2> /dev/null |
      sed -n 's/ installed$//p' | sort)
}

install_packages() {
  command -v dpkg-query > /dev/null || {
    say "no dpkg here: install by hand what $packages lists"
    return
  }
  local missing sudo=()
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null ||
      die "missing, and neither root nor sudo is at hand: ${missing//$'\n'/ }"
    sudo=(sudo)
  fi
  say "installing Debian packages: ${missing//$'\n'/ }"
  "${sudo[@]}" apt-get update -qq
  # shellcheck disable=SC2086  # one word a package
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $missing > /dev/null
}

# The first python3 that has pip; setup has just installed Debian's.
pip_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version > /dev/null 2>&1; then
      printf '%s\n' "$python"
      return
    fi
  done
  die "no python3 with pip: install python3-pip"
}

download_wheels() {
  local folder=$1 python glibc platforms=() extra=() attempt
  python=$(pip_python)
  for glibc in $(seq 28 -1 17); do
    platforms+=(--platform "manylinux_2_${glibc}_x86_64")
  done
  platforms+=(--platform manylinux2014_x86_64)
  # A pip that can go on in the middle of a file does so; an older one starts that file again.
  if "$python" -m pip download --help | grep -q -- --resume-retries; then
    extra+=(--resume-retries 5)
  fi
  for attempt in 1 2 3; do
    # --isolated would hide the index and certificates that this machine is set up with.
    "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
      --only-binary=:all: --python-version 312 "${platforms[@]}" "${extra[@]}" \
      --require-hashes --requirement "$requirements" --dest "$folder" && return
    say "download failed (attempt $attempt of 3)"
  done
  die "LibTorch's wheels did not arrive; run ./dev setup again, what arrived is kept in $folder"
}

# What a C++ program needs of the wheels: libraries, headers, and torch's CMake files.
unpack_wheels() {
  python3 - "$1" "$2" << 'PYTHON'
import pathlib, sys, zipfile

wheels, target = map(pathlib.Path, sys.argv[1:])
wanted = ("torch/lib/", "torch/include/", "torch/share/", "nvidia/")
for wheel in sorted(wheels.glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(wanted) or n == "torch/version.py"
                 or n.endswith(("/LICENSE", "/NOTICE", "/License.txt"))]
        archive.extractall(target, names)
PYTHON
}

install_torch() {
  local root partial downloads
  root=$(torch_root)
  [ -d "$root" ] && return
  [ "$(uname -m)" = x86_64 ] || die "LibTorch is pinned for x86_64, this is $(uname -m): try --no-torch"
  mkdir -p "$cache"
  # One at a time: a second setup waits here and then finds the work done.
  exec 9> "$cache/.setup.lock"
  flock 9
  [ -d "$root" ] && return
  downloads=$cache/downloads
  partial=$root.partial
  say "fetching LibTorch into $root (540 MB to download, 1.3 GB unpacked)"
  rm -rf "$cache"/libtorch-*.partial
  mkdir -p "$downloads" "$partial"
  download_wheels "$downloads"
  say "unpacking LibTorch"
  unpack_wheels "$downloads" "$partial"
  mv "$partial" "$root"
  rm -rf "$downloads"
}

# A virtual environment is as good at another place as long as nobody runs its bin/ scripts, so this
# one, too, appears whole by a rename. It gets no pip of its own: the outer one installs into it.
install_notebooks() {
  local root partial python
  root=$(notebook_root)
  [ -d "$root" ] && return
  mkdir -p "$cache"
  exec 8> "$cache/.setup-notebooks.lock"
  flock 8
  [ -d "$root" ] && return
  python=$(pip_python)
  partial=$root.partial
  say "fetching what the notebooks run on into $root (75 MB to download, 400 MB unpacked)"
  rm -rf "$cache"/notebooks-*.partial
  "$python" -m venv --without-pip "$partial"
  "$python" -m pip --python "$partial/bin/python" install --quiet --disable-pip-version-check \
    --no-deps --only-binary=:all: --require-hashes --requirement "$notebook_requirements" ||
    die "what the notebooks run on did not arrive; run ./dev notebook again"
  mv "$partial" "$root"
}

with_torch=1
with_notebooks=0
for argument in "$@"; do
  case $argument in
    --no-torch) with_torch=0 ;;
    --notebooks) with_notebooks=1 ;;
    --print-notebook-python)
      printf '%s/bin/python\n' "$(notebook_root)"
      exit
      ;;
    --print-torch-root)
      torch_root
      exit
      ;;
    --help | -h)
      usage
      exit
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done

install_packages
[ "$with_torch" -eq 0 ] || install_torch
[ "$with_notebooks" -eq 0 ] || install_notebooks
