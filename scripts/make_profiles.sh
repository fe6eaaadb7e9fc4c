#!/usr/bin/env bash
# Takes the profiles of examples/profiles again, on this machine, which should be otherwise idle:
# a quarter of an hour. vgg16.json stays as it is unless named, since pages quote what follows from it.
#
#   scripts/make_profiles.sh build/bin/xpipe [MODEL...]      default: resnet101 inception_v3
set -euo pipefail

[ $# -ge 1 ] || {
  printf 'usage: scripts/make_profiles.sh XPIPE [MODEL...]\n' >&2
  exit 2
}
xpipe=$1
shift
[ $# -gt 0 ] || set -- resnet101 inception_v3
profiles=$(cd "$(dirname "${BASH_SOURCE[0]}")/../examples/profiles" && pwd)

for model in "$@"; do
  case $model in
    vgg16) options=(--input 3x32x32 --batch-size 64 --warm-up 3 --repeats 20) ;;
    # Tiny ImageNet's size, and micro-batches that leave the caches as training does.
    resnet101) options=(--input 3x64x64 --batch-size 16 --warm-up 3 --repeats 20) ;;
    inception_v3) options=(--input 3x64x64 --batch-size 8 --warm-up 2 --repeats 8) ;;
    *)
      printf 'make_profiles: no profile of %s is kept\n' "$model" >&2
      exit 2
      ;;
  esac
  "$xpipe" profile --model "$model" "${options[@]}" --optimizer adam -o "$profiles/$model.json"
done
