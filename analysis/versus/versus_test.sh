#!/usr/bin/env bash
# Runs the unit tests of this folder, without any of the frameworks.
set -euo pipefail
exec python3 -B analysis/versus/versus_test.py
