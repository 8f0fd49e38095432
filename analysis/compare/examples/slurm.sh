#!/usr/bin/env bash
#SBATCH --job-name=performance
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=00:30:00
# The gate as a Slurm job. Submit it in the repository's root, after `./bazelw build //:study //analysis:compare`:
#   sbatch --wait --export=ALL,BASELINE=/shared/baseline,RESULTS=/shared/results/new analysis/compare/examples/slurm.sh
# sbatch --wait exits with the job's exit code, which is that of gate.sh. Measure the baseline on the same kind of node.
set -euo pipefail
status=0
analysis/compare/examples/gate.sh check "${BASELINE:?}" "${RESULTS:?}" "$@" || status=$?
if [[ -f "$RESULTS/report.md" ]]; then cat "$RESULTS/report.md"; fi
exit "$status"
