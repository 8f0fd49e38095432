#!/usr/bin/env bash
# A gate against performance regressions, with //:study and //analysis:compare, which must be built. Run it in the repository's root:
#   gate.sh store BASELINE [FLAG...]            measures a baseline into the new folder BASELINE
#   gate.sh check BASELINE RESULTS [FLAG...]    measures into RESULTS, compares, and writes RESULTS/report.md
# FLAGs are passed to the study and override those below; give both commands the same ones. GATE_THRESHOLD=0.05 is compare's --threshold,
# GATE_METRICS=step_seconds,comm_wait_seconds,peak_bytes its --metrics.
# Exit codes of check, from compare: 0: nothing is worse by more than the threshold; 1: something is; 2: not compared (for example, no baseline);
# 3: inconclusive ("cannot say"): store a baseline and check with more repetitions (--repetitions=20), on an otherwise idle machine.
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
    # 1: some runs failed. The others are compared, and --require_all names what is missing.
    status=0
    measure "${@:3}" || status=$?
    ((status <= 1)) || exit "$status"
    "$programs/analysis/compare/compare" --require_all --metrics="${GATE_METRICS:-step_seconds,comm_wait_seconds,peak_bytes}" \
      --threshold="${GATE_THRESHOLD:-0.05}" --markdown="$3/report.md" "$2" "$3"
    ;;
  *)
    echo "gate.sh: expected \"store BASELINE\" or \"check BASELINE RESULTS\"" >&2
    exit 2
    ;;
esac
