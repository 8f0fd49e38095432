#!/usr/bin/env bash
# Starts Slurm on all hosts created by cluster.sh: the controller on host1, and a job daemon on each. Inside cluster.sh:
#
#   slurm.sh && srun --ntasks=4 hostname
#
# Configuration, logs and state are in /run/slurm, which is removed with the cluster. Exit code: 77, with the reason on stderr, if a program
# is missing.
set -euo pipefail
on_host="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)/on_host.sh"
slurm=/run/slurm
patience_seconds=30

for program in slurmctld slurmd munged; do
  if ! PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null; then
    echo "slurm.sh: $program is missing (apt-get install slurm-wlm munge)" >&2
    exit 77
  fi
done
export PATH="$PATH:/usr/sbin"

hosts=()
for file in /run/cluster/host[1-9]; do hosts+=("$(basename "$file")"); done

mkdir -p "$slurm/state"
chmod 755 /run "$slurm"
cat >"$slurm/slurm.conf" <<END
ClusterName=cluster
SlurmctldHost=host1
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
StateSaveLocation=$slurm/state
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdPidFile=$slurm/%n.pid
SlurmdLogFile=$slurm/%n.log
SlurmdSpoolDir=$slurm/%n
TmpFS=$slurm/%n
NodeName=host[1-${#hosts[@]}] CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
END
(umask 077 && head -c 128 /dev/urandom >"$slurm/munge.key")

# Each host has its own munged behind the usual socket, and the configuration in the usual place.
for host in "${hosts[@]}"; do
  "$on_host" "$host" "
    mkdir -p /run/munge /etc/slurm '$slurm/$host'
    mount -t tmpfs -o mode=755 none /run/munge
    mount --bind '$slurm' /etc/slurm
    munged --key-file='$slurm/munge.key' --pid-file=/run/munge/pid --seed-file=/run/munge/seed --log-file=/run/munge/log"
done
"$on_host" host1 slurmctld
for host in "${hosts[@]}"; do "$on_host" "$host" "slurmd -N '$host'"; done

deadline=$((SECONDS + patience_seconds))
until (($("$on_host" host1 "sinfo --noheader --Node --states=idle 2>/dev/null" | wc -l) == ${#hosts[@]})); do
  if ((SECONDS >= deadline)); then
    echo "slurm.sh: not all hosts are idle after $patience_seconds s:" >&2
    "$on_host" host1 "sinfo --Node --long" >&2 || true
    tail -n 20 "$slurm"/*.log >&2
    exit 1
  fi
  sleep 0.1
done
