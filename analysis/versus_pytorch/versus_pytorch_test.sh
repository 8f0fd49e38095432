#!/usr/bin/env bash
# Runs the unit tests of this folder, without PyTorch.
set -euo pipefail
exec python3 -B analysis/versus_pytorch/versus_pytorch_test.py
