#!/usr/bin/env bash
#SBATCH --job-name=performance
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=00:30:00
# The gate as a Slurm job, from the repository's folder, after `./bazelw build //:study //analysis:compare`:
#   sbatch --wait --export=ALL,BASELINE=/shared/baseline,RESULTS=/shared/results/new analysis/compare/examples/slurm.sh
# sbatch --wait ends with the job's exit code, which is that of gate.sh. The same kind of node must have measured the baseline.
set -euo pipefail
status=0
analysis/compare/examples/gate.sh check "${BASELINE:?}" "${RESULTS:?}" "$@" || status=$?
if [[ -f "$RESULTS/report.md" ]]; then cat "$RESULTS/report.md"; fi
exit "$status"
