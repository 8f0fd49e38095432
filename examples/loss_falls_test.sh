#!/usr/bin/env bash
# Checks that the program succeeds and that its last loss is below half of its
# first.
set -euo pipefail
output="$("$1")"
echo "$output"
awk '/^step/ { loss[n++] = $NF } END { exit !(n > 1 && loss[n - 1] < loss[0] / 2) }' <<<"$output"
