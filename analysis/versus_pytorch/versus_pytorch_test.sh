#!/usr/bin/env bash
# Runs the unit tests beside it, without PyTorch.
set -euo pipefail
exec python3 -B analysis/versus_pytorch/versus_pytorch_test.py
