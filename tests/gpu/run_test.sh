#!/usr/bin/env bash
# Runs the unit tests of run.py.
set -euo pipefail
exec python3 -B tests/gpu/run_test.py
