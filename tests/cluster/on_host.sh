#!/usr/bin/env bash
# Runs a shell command on a host created by cluster.sh, like ssh, but in the current folder and with the current environment:
#
#   on_host.sh HOST COMMAND...
set -euo pipefail
host="$1"
shift
if ! pid="$(cat "/run/cluster/$host" 2>/dev/null)"; then
  echo "on_host.sh: there is no $host in this cluster; it works within cluster.sh only" >&2
  exit 255
fi
exec nsenter --target "$pid" --net --uts --mount --ipc bash -c "cd ${PWD@Q} && $*"
