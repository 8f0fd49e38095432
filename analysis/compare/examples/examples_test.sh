#!/usr/bin/env bash
# Runs the example gate with the real study and comparison, few repetitions and short runs. Timing cannot fail this test: memory is compared, and
# the checks that must not pass lack a configuration or the baseline.
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

# A trainer that no longer runs.
mkdir "$TEST_TMPDIR/trainers"
ln -s "$PWD/trainers/single" "$TEST_TMPDIR/trainers/single"
ln -s "$(type -P false)" "$TEST_TMPDIR/trainers/ddp"
status=0
"$examples/gate.sh" check "$baseline" "$TEST_TMPDIR/broken" "${short[@]}" --trainer_dir="$TEST_TMPDIR/trainers" || status=$?
[[ "$status" == 3 ]] || fail "exit code $status where a trainer fails"
grep -q 'B lacks ddp' "$TEST_TMPDIR/broken/report.md" || fail "the report does not say what is missing"

# The workflow runs the same commands as this test.
for command in store check; do
  grep -q "examples/gate.sh $command \"\$HOME/rankwise-baseline\"" "$examples/github.yml" || fail "github.yml does not $command"
done
