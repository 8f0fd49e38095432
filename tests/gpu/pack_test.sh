#!/usr/bin/env bash
# Unpacks the archive into a clean environment and tries the parts of `run` that need no GPU.
set -euo pipefail
archive="$PWD/tests/gpu/pack.tar.xz"
test_program="$PWD/tests/gpu/test_program"
cd "$TEST_TMPDIR"
tar -xJf "$archive"
cd rankwise

failures=0
fail() {
  echo "pack_test: $1" >&2
  failures=$((failures + 1))
}

# pack EXIT_CODE ARGUMENT...: runs it; its output is in $output.
pack() {
  local want="$1" code=0
  shift
  output="$(env -i PATH="$PATH" "${environment[@]}" ./run "$@" 2>&1)" || code=$?
  ((code == want)) || fail "run $*: exit code $code instead of $want: $output"
}
environment=(HOME="$TEST_TMPDIR")

says() { grep -qE -- "$1" <<<"$output" || fail "the output lacks '$1': $output"; }

# The LibTorch of this build: CI has no other.
torch="$(readelf -d trainers/single | sed -n 's/.*(RUNPATH).*\[\([^]:]*\)\/lib.*/\1/p')"
[[ -f "$torch/version.py" ]] || fail "no LibTorch at '$torch'"

# The whole dry run.
pack 0 --dry_run --torch="$torch" --out=all
tests="$(grep -c '^test' contents)"
((tests > 0)) || fail "no tests in the archive"
says '^torch 2\.11\.'
says '^name +passed +skipped +failed +seconds$'
says '^[0-9]+ passed, [0-9]+ skipped, 0 failed$'
while IFS=$'\t' read -r kind name; do
  case "$kind" in
    test) says "^$name +[0-9]+ +[0-9]+ +0 +[0-9.]+  (needs .*GPU|dry run)" ;;
    program) says "^$name +1 +0 +0 +[0-9.]+  dry run: libraries resolve" ;;
  esac
done <contents
[[ -s all/summary.json ]] || fail "no summary.json"
[[ "$(find all -name '*_gpu_test.list.log' | wc -l)" == "$tests" ]] || fail "tests without a log"
python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' tests/gpu/plain_pytorch.py ||
  fail "plain_pytorch.py is no Python"

# PyTorch of another version, and no PyTorch.
mkdir -p other/torch none/torch
echo '__version__ = "2.10.0+cu128"' >other/torch/__init__.py
echo 'raise ImportError("no such thing")' >none/torch/__init__.py
environment=(PYTHONPATH="$PWD/other")
pack 2 --dry_run --out=refused
says 'torch 2\.10\.0\+cu128 in .*linked to torch 2\.11'
environment=(PYTHONPATH="$PWD/none")
pack 2 --dry_run --out=refused
says 'cannot import torch \(ImportError: no such thing\)'
environment=(HOME="$TEST_TMPDIR")
pack 2 --dry_run --torch=/nonexistent --out=refused
says '--torch=/nonexistent: no version.py in it'
pack 2 --dry_run --torch="$torch" --out=refused --only=no_such_thing
says 'nothing has no_such_thing in its name'

# A missing library.
mkdir -p broken
LC_ALL=C sed 's/libc10\.so/libcx0.so/g' trainers/single >broken/single
chmod +x broken/single
printf 'program\tbroken/single\n' >>contents
pack 1 --dry_run --torch="$torch" --out=missing --only=broken
says '^broken/single +0 +0 +1 .*missing: libcx0\.so'

# Tests that fail, die and hang.
cp "$test_program" broken/some_test
printf 'test\tbroken/some_test\n' >>contents
ends() {
  environment=(TEST_PROGRAM_ENDS="$2")
  pack "$1" --dry_run --torch="$torch" --out=ends --only=some_test --timeout="${3:-60}"
}
if ! command -v nvidia-smi >/dev/null; then
  ends 0 well
  says '^broken/some_test +2 +1 +0 .*no moon tonight$'
  ends 1 badly
  says '^broken/some_test +1 +1 +1 .*Ends\.AsTold; no moon tonight$'
  says '^1 passed, 1 skipped, 1 failed$'
  ends 1 by_signal
  says '^broken/some_test +1 +1 +1 .*ended by signal 6'
  ends 1 never 1
  says '^broken/some_test +1 +1 +1 .*did not end within 1'
fi

((failures == 0))
