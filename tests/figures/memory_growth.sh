#!/usr/bin/env bash
# Checks whether trainers' memory grows over 10,000 steps: prints the total resident memory of all of a trainer's processes, in MB, when it
# logs step 1,000 and when it logs step 10,000. Exit code 1 if it grew by more than 5 %, or a trainer did not get there. After
# ./bazelw build //trainers/...:
#   tests/figures/memory_growth.sh [TRAINER...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
steps=10000
most_growth_percent=5
small=(--model=mlp --width=16 --batch_size=4)
gpt=(--model=gpt --depth=2 --width=64 --sequence_length=8 --batch_size=4)

# flags TRAINER: prints its flags, one per line.
flags() {
  case "$1" in
    single) printf '%s\n' "${small[@]}" ;;
    ddp | fsdp) printf '%s\n' --nproc=2 "${small[@]}" ;;
    parameter_server) printf '%s\n' --nproc=3 "${small[@]}" ;;
    data_parallel) printf '%s\n' --replicas=2 "${small[@]}" ;;
    model_parallel) printf '%s\n' --nproc=2 "${gpt[@]}" ;;
    pipeline) printf '%s\n' --nproc=2 --microbatches=2 "${gpt[@]}" ;;
    tensor_parallel) printf '%s\n' --nproc=2 "${gpt[@]}" ;;
    hybrid) printf '%s\n' --nproc=2 --pp=2 --microbatches=2 "${gpt[@]}" ;;
    *) echo "memory_growth.sh: no trainer \"$1\"" >&2 && return 2 ;;
  esac
}

# Memory of all processes of the session.
resident_kilobytes() { ps -o rss= -s "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }

# measure TRAINER: prints its row; fails if memory grew.
measure() {
  local trainer="$1" arguments line early=0 late=0
  mapfile -t arguments < <(flags "$trainer")
  exec 3< <(exec setsid "bazel-bin/trainers/$trainer" "${arguments[@]}" --threads=1 --train_size=160000 --epochs=1 --max_steps="$steps" \
    --log_every=1000 --eval=false 2>&1)
  local session=$!
  while read -r line <&3; do
    case "$line" in
      *" step 1000/"*) early="$(resident_kilobytes "$session")" ;;
      *" step $steps/"*) late="$(resident_kilobytes "$session")" ;;
    esac
  done
  awk -v trainer="$trainer" -v early="$early" -v late="$late" -v most="$most_growth_percent" 'BEGIN {
    if (early == 0 || late == 0) { print trainer ": did not get to the last step"; exit 1 }
    growth = 100 * (late / early - 1)
    printf "%-16s %8.1f MB at step 1,000 %8.1f MB at the end %+6.2f %%\n", trainer, early / 1024, late / 1024, growth
    exit growth > most
  }'
}

trainers=("$@")
((${#trainers[@]})) || trainers=(single ddp data_parallel fsdp parameter_server model_parallel pipeline tensor_parallel hybrid)
status=0
for trainer in "${trainers[@]}"; do measure "$trainer" || status=1; done
exit "$status"
