#!/usr/bin/env bash
# The gate of the examples, by the real study and comparison, with few and short runs. Timing decides nothing here: memory is compared, and
# what must not pass lacks a configuration or the baseline.
set -euo pipefail
examples=analysis/compare/examples
export RANKWISE_PROGRAMS=. GATE_THRESHOLD=50 GATE_METRICS=peak_bytes
baseline="$TEST_TMPDIR/baseline"
short=(--model=linear --repetitions=2 --max_steps=16 --threads=1)

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

"$examples/gate.sh" store "$baseline" "${short[@]}"

"$examples/gate.sh" check "$baseline" "$TEST_TMPDIR/same" "${short[@]}" || fail "equal code does not pass"
grep -qx '### Performance: passed' "$TEST_TMPDIR/same/report.md" || fail "the report does not say passed"

export BASELINE="$baseline" RESULTS="$TEST_TMPDIR/less"
status=0
"$examples/slurm.sh" "${short[@]}" --trainers=single >"$TEST_TMPDIR/job.txt" || status=$?
[[ "$status" == 3 ]] || fail "exit code $status where a configuration is missing"
grep -qx '### Performance: cannot say' "$TEST_TMPDIR/job.txt" || fail "the job does not show the report"

status=0
"$examples/gate.sh" check "$TEST_TMPDIR/none" "$TEST_TMPDIR/alone" "${short[@]}" --trainers=single || status=$?
[[ "$status" == 2 ]] || fail "exit code $status without a baseline"
grep -qx '### Performance: not compared' "$TEST_TMPDIR/alone/report.md" || fail "the report does not say that nothing was compared"

# The commands of the workflow are those that were run above.
for command in store check; do
  grep -q "examples/gate.sh $command \"\$HOME/rankwise-baseline\"" "$examples/github.yml" || fail "github.yml does not $command"
done
