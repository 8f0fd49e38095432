#!/usr/bin/env bash
# Runs the unit tests of skips.py.
set -euo pipefail
exec python3 -B .ci/skips_test.py
