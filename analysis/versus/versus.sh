#!/usr/bin/env bash
# Starts versus.py, which lies in this program's runfiles.
set -euo pipefail
shopt -s nullglob

programs=("${RUNFILES_DIR:-$0.runfiles}"/*/analysis/versus/versus.py)
if ((${#programs[@]} == 0)); then
  echo "versus: its files are missing beside $0; start it by \`bazel run //analysis:versus\`" >&2
  exit 1
fi
if ! command -v python3 >/dev/null; then
  echo "versus: python3 is missing; on Debian, \`apt-get install python3\`" >&2
  exit 1
fi
exec python3 -B "${programs[0]}" "$@"
