#!/usr/bin/env bash
# Runs the unit tests of this folder, without any of the frameworks.
set -euo pipefail
python3 -B analysis/versus/versus_test.py
python3 -B analysis/versus/data_parallel_test.py
