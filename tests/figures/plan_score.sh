#!/usr/bin/env bash
# Records the runs of docs/plan.md, "Scored", and prints the planner's predictions next to them. After
# ./bazelw build //trainers/... //comm_bench //comm_bench:overlap //analysis:plan, on an otherwise idle machine:
#   tests/figures/plan_score.sh DIR [shm|hosts|fake5us|fake20us]...
# Without names, all four sets. The runs of each are repeated in rounds, each in a random order. A run writes DIR/SET/NAME-xRANKS-repN.jsonl when it has
# finished, and is skipped if that file exists, so the same command continues after an interruption. hosts needs root (tests/cluster/cluster.sh).
# REPETITIONS=3, STEPS=24 (at least 15) and RANKWISE_PROGRAMS=bazel-bin may be overridden. Exit code 1, with the command and its output, if a run fails.
set -euo pipefail
repetitions="${REPETITIONS:-3}"
training=(--model=gpt --model_size=nano --precision=fp32 --eval=false --peak=none --memory --max_steps="${STEPS:-24}")

if (($# == 0)); then
  echo "plan_score.sh: expected DIR [shm|hosts|fake5us|fake20us]..." >&2
  exit 2
fi
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
sets=("${@:2}")
((${#sets[@]})) || sets=(shm hosts fake5us fake20us)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs="${RANKWISE_PROGRAMS:-bazel-bin}"

# The following functions print a line per run: its name, ranks, program and flags. Trainers use 8 examples per step, except single and fake ranks.

# data_parallel RANKS BATCH_SIZE [FLAGS_OF_DDP FLAGS_OF_ZERO]
data_parallel() {
  echo "ddp $1 trainers/ddp --batch_size=$2 ${3:-}"
  local zero
  for zero in 1 2 3; do echo "zero$zero $1 trainers/fsdp --zero=$zero --batch_size=$2 ${4:-}"; done
}

meshes() {
  cat <<END
tp2 2 trainers/hybrid --tp=2 --microbatches=1 --batch_size=8
cp2 2 trainers/hybrid --cp=2 --microbatches=1 --batch_size=8
pp2-4x2 2 trainers/hybrid --pp=2 --schedule=1f1b --microbatches=4 --batch_size=2
pp2-8x1 2 trainers/hybrid --pp=2 --schedule=1f1b --microbatches=8 --batch_size=1
pp2-interleaved 2 trainers/hybrid --pp=2 --schedule=interleaved_1f1b --chunks=2 --microbatches=4 --batch_size=2
dp2-tp2 4 trainers/hybrid --tp=2 --microbatches=1 --batch_size=4
pp2-dp2 4 trainers/hybrid --pp=2 --schedule=1f1b --microbatches=4 --batch_size=1
pp4 4 trainers/hybrid --pp=4 --schedule=1f1b --microbatches=8 --batch_size=1
END
}

meshes_of_one_host() {
  cat <<END
tp2-sequence_parallel 2 trainers/hybrid --tp=2 --sequence_parallel --microbatches=1 --batch_size=8
tp2-4x2 2 trainers/hybrid --tp=2 --microbatches=4 --batch_size=2
pp2-zbv 2 trainers/hybrid --pp=2 --schedule=zbv --microbatches=4 --batch_size=2
pp2-zero_bubble_h1 2 trainers/hybrid --pp=2 --schedule=zero_bubble_h1 --microbatches=4 --batch_size=2
tp4 4 trainers/hybrid --tp=4 --microbatches=1 --batch_size=8
cp4 4 trainers/hybrid --cp=4 --microbatches=1 --batch_size=8
dp2-cp2 4 trainers/hybrid --cp=2 --microbatches=1 --batch_size=4
pp2-tp2 4 trainers/hybrid --pp=2 --tp=2 --schedule=1f1b --microbatches=4 --batch_size=2
END
}

# Runs to which the planner is fitted: computation without communication, and the links.
fitted() {
  local batch ranks
  for batch in 1 2 4 8; do echo "single-batch$batch 1 trainers/single --batch_size=$batch"; done
  for ranks in 2 4; do
    echo "ddp-skip_communication $ranks trainers/ddp --skip_communication --batch_size=$((8 / ranks))"
    echo "links $ranks comm_bench/comm_bench --collectives=all_reduce,all_gather,reduce_scatter,ping_pong --sizes=1K,4K,16K,64K,256K,1M,4M"
    echo "overlap $ranks comm_bench/overlap --gemm_size=128 --collectives=all_reduce,all_gather,reduce_scatter --sizes=64K,256K,1M"
  done
}

# ring RANKS MESSAGES US NS_PER_BYTE: flags of a fake link on which a collective takes MESSAGES successive messages of 1 / RANKS of the bytes.
ring() {
  awk -v ranks="$1" -v messages="$2" -v us="$3" -v ns="$4" 'BEGIN {
    printf "--fake_world_size=%d --fake_alpha_us=%.9g --fake_beta_ns_per_byte=%.9g\n", ranks, messages * us, messages / ranks * ns }'
}

# fake US NS_PER_BYTE: an all-reduce takes 2 (RANKS - 1) messages (Patarasuk and Yuan 2009), an all-gather or reduce-scatter half as many.
fake() {
  local ranks twice once exactly="--fake_virtual_time --sizes=1K,16K,256K,1M,4M --iterations=12 --check=false"
  echo "links-messages 2 comm_bench/comm_bench --collectives=ping_pong $exactly --fake_world_size=2 --fake_alpha_us=$1 --fake_beta_ns_per_byte=$2"
  for ranks in 8 16 32 64; do
    twice="$(ring "$ranks" $((2 * (ranks - 1))) "$@")"
    once="$(ring "$ranks" $((ranks - 1)) "$@")"
    data_parallel "$ranks" 4 "$twice" "$once"
    ((ranks <= 16)) || continue
    echo "links-all_reduce $ranks comm_bench/comm_bench --collectives=all_reduce $exactly $twice"
    echo "links-zero $ranks comm_bench/comm_bench --collectives=all_gather,reduce_scatter $exactly $once"
  done
}

runs_of() {
  case "$1" in
    shm) fitted && data_parallel 2 4 && data_parallel 4 2 && meshes && meshes_of_one_host ;;
    hosts) fitted && data_parallel 2 4 && data_parallel 4 2 && meshes ;;
    fake5us) fake 5 0.2 ;;
    fake20us) fake 20 2 ;;
    *) echo "plan_score.sh: unknown set \"$1\"; expected shm, hosts, fake5us or fake20us" >&2 && return 2 ;;
  esac
}

# on_hosts RANKS COMMAND...: runs a rank on each host.
on_hosts() {
  local command=("${@:2}") rank pids=() pid status=0
  for ((rank = 0; rank < $1; ++rank)); do
    tests/cluster/on_host.sh "host$((rank + 1))" "exec env RANK=$rank WORLD_SIZE=$1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1" \
      "MASTER_ADDR=host1 MASTER_PORT=29500 ${command[*]@Q}" &
    pids+=("$!")
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return "$status"
}

# record SET REPETITION NAME RANKS PROGRAM FLAG...
record() {
  local file="$folder/$1/$3-x$4-rep$2" command=() start="$SECONDS"
  [[ ! -e "$file.jsonl" ]] || return 0
  [[ "$1" != hosts ]] || command=(on_hosts "$4")
  command+=("$programs/$5" "${@:6}" --threads=1 --record="$file.part")
  [[ "$5" != trainers/* ]] || command+=("${training[@]}")
  case "$1 $4" in
    *" 1") ;;
    shm*) command+=(--backend=shm --nproc="$4") ;;
    hosts*) command+=(--backend=gloo) ;;
    fake*) command+=(--backend=fake) ;;
  esac
  rm -f "$file.part"
  if ! "${command[@]}" &>"$file.log"; then
    cat "$file.log" >&2
    echo "plan_score.sh: failed: ${command[*]@Q}" >&2
    return 1
  fi
  mv "$file.part" "$file.jsonl"
  echo "$1, $3-x$4-rep$2: $((SECONDS - start)) s" >&2
}

# score SET FLAG...
score() {
  echo "plan --records=$folder/$1 --score ${*:2}"
  "$programs/analysis/plan/plan" --records="$folder/$1" --score "${@:2}"
}

# record_and_score SET
record_and_score() {
  local repetition run runs words
  if [[ "$1" == hosts && ! -d /run/cluster ]]; then
    tests/cluster/cluster.sh --hosts=4 --rate=1gbit tests/figures/plan_score.sh "$folder" hosts
    return
  fi
  mkdir -p "$folder/$1"
  for ((repetition = 1; repetition <= repetitions; ++repetition)); do
    mapfile -t runs < <(runs_of "$1" | shuf)
    for run in "${runs[@]}"; do
      read -r -a words <<<"$run"
      record "$1" "$repetition" "${words[@]}"
    done
  done
  case "$1" in
    shm) score shm && score shm --memory=20MB ;;
    hosts) score hosts ;;
    fake*) score "$1" --fit_up_to=16 ;;
  esac
}

for set in "${sets[@]}"; do runs_of "$set" >/dev/null; done
for set in "${sets[@]}"; do record_and_score "$set"; done
