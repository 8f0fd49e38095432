#!/usr/bin/env bash
# A gate against slower training, by the built //:study and //analysis:compare, in the repository's folder:
#   gate.sh store BASELINE [FLAG...]            measures a baseline into a folder that is new
#   gate.sh check BASELINE RESULTS [FLAG...]    measures into RESULTS, compares, and writes RESULTS/report.md
# Flags of the study after these win over those below; give both commands the same. GATE_THRESHOLD=0.05 is the share by which a change counts,
# GATE_METRICS=step_seconds,exposed_comm_seconds,peak_bytes what is compared.
# Exit code of check: 0 where nothing is worse by more than that, 1 where something is, 2 where there is no comparison (no baseline, say), 3 where
# the repetitions do not decide it: store a baseline and check with more (--repetitions=20), on a machine that does nothing else.
set -euo pipefail
programs="${RANKWISE_PROGRAMS:-bazel-bin}"

measure() {
  "$programs/analysis/study/study" --trainers=single,ddp --world_sizes=1,2 --scaling=strong --repetitions=10 --max_steps=60 --ablations=0 \
    --comm_bench=false --report=false --output_dir="$1" "${@:2}"
}

case "${1:-}" in
  store)
    measure "${@:2}"
    ;;
  check)
    measure "${@:3}"
    "$programs/analysis/compare/compare" --require_all --metrics="${GATE_METRICS:-step_seconds,exposed_comm_seconds,peak_bytes}" \
      --threshold="${GATE_THRESHOLD:-0.05}" --markdown="$3/report.md" "$2" "$3"
    ;;
  *)
    echo "gate.sh: expected \"store BASELINE\" or \"check BASELINE RESULTS\"" >&2
    exit 2
    ;;
esac
