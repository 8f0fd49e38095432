#!/usr/bin/env bash
# Emulates several hosts on this machine, runs a command on the first of them, and removes everything afterwards:
#
#   cluster.sh [--hosts=2] [--rate=1gbit] [--mtu=9000] COMMAND [ARGUMENT...]
#
# The hosts are called host1, host2, ... and connected to one switch; hostN has the address 192.168.77.N on its interface eth0. --rate limits
# each host's link in both directions, in tc's units; the default is no limit. A host has its own hostname, network, System V IPC and
# /dev/shm; the file system is shared, as over NFS. on_host.sh runs commands on any host.
#
# A host is a set of unnamed namespaces, all inside one process namespace. The kernel kills that namespace's first process when the caller of
# this script ends, for any reason; all its processes, interfaces and mounts end with it.
#
# Exit code: the command's; 77, with the reason on stderr, if this machine does not permit hosts.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
self="$here/$(basename "${BASH_SOURCE[0]}")"

cannot() {
  echo "cluster.sh: no hosts can be made here: $1" >&2
  exit 77
}

check_machine() {
  [[ "$(uname -s)" == Linux ]] || cannot "this is not Linux"
  [[ "$(id -u)" == 0 ]] || cannot "namespaces take root"
  local tool why
  for tool in ip tc unshare nsenter setpriv; do
    command -v "$tool" >/dev/null || cannot "$tool is missing (apt-get install iproute2 util-linux)"
  done
  why="$(unshare --net --pid --mount --uts --ipc --fork --mount-proc \
    ip link add port1 type veth peer name eth0 2>&1)" || cannot "$why"
}

# limit_rate INTERFACE RATE BURST: limits outgoing traffic. After a pause BURST bytes are sent immediately; less than 128k would lower the
# rate on a loaded machine. The queue holds TCP's data in flight, so that nothing is lost.
limit_rate() {
  [[ -z "$2" ]] || tc qdisc add dev "$1" root tbf rate "$2" burst "$3" limit 16m
}

# connect NUMBER RATE MTU: the cable between the switch and a host.
connect() {
  local pid
  pid="$(<"/run/cluster/host$1")"
  ip link add "port$1" mtu "$3" type veth peer name eth0 mtu "$3" netns "$pid"
  ip link set "port$1" master switch up
  # Matters if several hosts send to this one: the traffic of a single sender is already limited at its own end.
  limit_rate "port$1" "$2" 512k
  nsenter --target "$pid" --net bash -euc "
    ip address add 192.168.77.$1/24 dev eth0
    ip link set eth0 up
    $(declare -f limit_rate)
    limit_rate eth0 '$2' 128k"
}

# Runs in the namespaces of a new host.
be_host() {
  hostname "$1"
  mount -t tmpfs none /dev/shm
  mount --bind /run/cluster/hosts /etc/hosts
  ip link set lo up
  echo ready
  exec sleep infinity
}

# Runs in the namespaces that contain all hosts.
be_cluster() {
  local hosts="$1" rate="$2" mtu="$3" number ready
  shift 3
  mount -t tmpfs none /run
  mkdir /run/cluster
  {
    echo "127.0.0.1 localhost"
    for ((number = 1; number <= hosts; ++number)); do echo "192.168.77.$number host$number"; done
  } >/run/cluster/hosts
  ip link add switch mtu "$mtu" type bridge
  ip link set switch up
  for ((number = 1; number <= hosts; ++number)); do
    exec {ready}< <(exec unshare --net --mount --uts --ipc "$self" --be-host "host$number")
    echo "$!" >"/run/cluster/host$number"
    read -r -u "$ready" _
    connect "$number" "$rate" "$mtu"
  done
  "$here/on_host.sh" host1 "${*@Q}"
}

# From here on this process ends with its caller, whose id is $1, and ends everything that unshare starts.
guard() {
  [[ "$PPID" == "$1" ]] || exit 1
  exec unshare --net --pid --mount --uts --ipc --fork --kill-child --mount-proc "$self" --be-cluster "${@:2}"
}

case "${1:-}" in
  --be-host) be_host "$2" ;;
  --be-cluster) be_cluster "${@:2}" ;;
  --guard) guard "${@:2}" ;;
  *)
    hosts=2 rate="" mtu=9000
    while [[ "${1:-}" == --* ]]; do
      case "$1" in
        --hosts=[1-9]) hosts="${1#*=}" ;;
        --rate=*) rate="${1#*=}" ;;
        --mtu=*) mtu="${1#*=}" ;;
        *)
          echo "cluster.sh: $1 is unknown; --hosts=1 to 9, --rate=RATE and --mtu=BYTES are known" >&2
          exit 2
          ;;
      esac
      shift
    done
    if (($# == 0)); then
      echo "cluster.sh: give it a command, e.g. bash" >&2
      exit 2
    fi
    check_machine
    exec setpriv --pdeathsig=KILL "$self" --guard "$PPID" "$hosts" "$rate" "$mtu" "$@"
    ;;
esac
