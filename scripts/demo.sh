#!/usr/bin/env bash
# What XPipe does, in one go: four policies simulated on a real profile; a convolutional net profiled
# here, simulated, and trained on real digits with two policies; plan and run laid over each other.
# usage: scripts/demo.sh XPIPE-BINARY       (called by ./dev demo, which builds it first)
set -euo pipefail

xpipe=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=build/demo
mkdir -p "$out"

stages=4
micro_batches=4
batch=80
epochs=8
mini_batches=50 # of an epoch: 4,000 training digits, 80 a mini-batch

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
  printf '$ xpipe %s\n' "$*"
  "$xpipe" "$@"
}

step "1. Four policies on a real VGG-16 profile over 4 devices (simulated)"
run simulate --policy xpipe,gpipe,pipedream,spectrain --stages 4 --micro-batches 1,2,4 \
  --mini-batches 50 --profile examples/profiles/vgg16.json

step "2. Profile LeNet-5 on this machine"
run profile --model lenet5 --input 1x28x28 --batch-size $((batch / micro_batches)) --repeats 51 \
  -o $out/lenet5.json

for policy in gpipe xpipe; do
  step "3. Train LeNet-5 on 4,000 real digits with $policy: $stages stages, $micro_batches micro-batches"
  run train --policy $policy --model lenet5 --data examples/data/digits --stages $stages \
    --micro-batches $micro_batches --batch-size $batch --epochs $epochs --optimizer adam --lr 0.001 \
    --seed 1 --profile $out/lenet5.json --trace $out/$policy-run.json --metrics $out/$policy.jsonl

  step "   ... simulate the very same schedule on that profile, and compare plan and run"
  run simulate --policy $policy --stages $stages --micro-batches $micro_batches \
    --mini-batches $mini_batches --batch-size $batch --profile $out/lenet5.json \
    --trace $out/$policy-plan.json
  run compare $out/$policy-plan.json $out/$policy-run.json
done

cores=$(nproc)
if [ "$cores" -lt $stages ]; then
  printf '\nThe plans give each of the %d stages a core of its own; this machine has %d, so that the runs\n' \
    $stages "$cores"
  printf 'take longer: most so with xpipe, whose plan leaves no core idle.\n'
fi

step "Traces, of plan and run, to open in https://ui.perfetto.dev (Open trace file) or chrome://tracing:"
ls -1 $out/*-plan.json $out/*-run.json
