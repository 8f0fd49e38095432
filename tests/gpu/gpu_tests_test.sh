#!/usr/bin/env bash
# Checks that the tests in gpu_tests.bzl are those declared in the BUILD files, as listed by `bazel query 'attr(tags, requires-gpu,
# //...)'`.
set -euo pipefail
list="$(readlink -f tests/gpu/gpu_tests.bzl)"
root="${list%/tests/gpu/gpu_tests.bzl}"
cd "$root"

declared() {
  local build package
  while read -r build; do
    package="${build#./}"
    package="${package%BUILD}"
    awk -v package="//${package%/}" '
      /^gpu_test\(/ { inside = 1 }
      inside && /name = "/ { split($0, part, "\""); print package ":" part[2]; inside = 0 }' "$build"
  done < <(find . -name BUILD -not -path './bazel-*' -not -path './.git/*') | LC_ALL=C sort
}

listed() { sed -n 's/^ *"\(\/\/.*\)",$/\1/p' "$list"; }

if ! diff <(listed) <(declared); then
  echo "tests/gpu/gpu_tests.bzl (<) lacks or invents tests of the BUILD files (>), or is not sorted" >&2
  exit 1
fi
[[ -n "$(listed)" ]]
