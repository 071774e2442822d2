#!/usr/bin/env bash
# Runs a command on a Slurm cluster of four nodes, all of them this host, and stops everything that it started.
#
#   scripts/slurm/test-cluster.sh COMMAND...
#
# Needs Debian's slurm-wlm and munge, root that may mount, and /sys/fs/cgroup. No systemd: munged, slurmctld and one slurmd a node
# are processes of this script, on ports and in a folder of their own, so that a cluster that the host may have is not touched.
set -euo pipefail

[[ $# -gt 0 ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $(id -u) -eq 0 ]] || { echo "$0: only root can start the daemons" >&2; exit 11; }
for program in munged slurmctld slurmd sinfo; do
    command -v "$program" >/dev/null || { echo "$0: $program is not installed; apt-get install slurm-wlm munge" >&2; exit 11; }
done

nodes=${CLUSTER_NODES:-4} cpus=${CLUSTER_CPUS:-4}
base=$(mktemp -d /tmp/skewbench-cluster.XXXXXX)
pids=() up=0
stop() {
    local status=$?
    trap - EXIT INT TERM
    # Jobs first: slurmstepd processes are children of no process of this script.
    if [[ -f $base/slurm.conf ]]; then
        timeout 10 scancel --user=root 2>/dev/null || true
        for _ in {1..50}; do
            [[ -n $(timeout 10 squeue --noheader 2>/dev/null) ]] || break
            sleep 0.2
        done
    fi
    # What a job has left: processes that carry this cluster's folder in their environment.
    for environment in /proc/[0-9]*/environ; do
        pid=${environment//[!0-9]/}
        if [[ $pid -ne $$ && " ${pids[*]} " != *" $pid "* ]] && grep -qzxF "SLURM_CONF=$base/slurm.conf" "$environment" 2>/dev/null; then
            kill -KILL "$pid" 2>/dev/null || true
        fi
    done
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do
        for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [[ $up == 0 ]]; then
        tail -n 15 "$base"/log/*.log >&2 || true
    fi
    rm -rf "$base"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# munged wants its socket's folder open to all and its key's to its user alone.
chmod 711 "$base"
mkdir -m 755 "$base/munge"
mkdir -m 700 "$base/key" "$base/state" "$base/log" "$base/spool"
head -c 1024 /dev/urandom >"$base/key/munge.key"
chmod 400 "$base/key/munge.key"
chown -R munge:munge "$base/munge" "$base/key"
setpriv --reuid=munge --regid=munge --clear-groups munged --foreground --key-file="$base/key/munge.key" \
    --socket="$base/munge/socket" --pid-file="$base/munge/pid" --seed-file="$base/key/seed" >"$base/log/munged.log" 2>&1 &
pids+=($!)

port=$((20000 + RANDOM % 20000))
{
    cat <<EOF
ClusterName=skewbench
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$base/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
StateSaveLocation=$base/state
SlurmdSpoolDir=$base/spool/%n
SlurmctldPidFile=$base/state/slurmctld.pid
SlurmdPidFile=$base/spool/%n.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_min_interval=100000,sched_interval=1,bf_interval=1,batch_sched_delay=0
GresTypes=gpu
KillWait=10
ReturnToService=2
SlurmdTimeout=20
MinJobAge=300
JobRequeue=1
EOF
    for ((i = 1; i <= nodes; i++)); do
        echo "NodeName=n$i NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=$cpus Sockets=1 CoresPerSocket=$cpus ThreadsPerCore=1 Gres=gpu:1"
    done
    echo "PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
} >"$base/slurm.conf"
export SLURM_CONF=$base/slurm.conf
# Cards that Slurm counts, for scripts that ask for them, and that are not there.
echo "Name=gpu File=/dev/null" >"$base/gres.conf"
# Where PMIx keeps its sockets, and MPI the memory that ranks of a node share, has one name on all nodes: each node has a folder of
# its own there.
mkdir -m 700 "$base/pmix"
# Fences in rings: by trees, which the default also uses for fences without data, a rank can leave the last fence of MPI_Init before
# others have left its first one (Slurm 22.05, Open MPI 4.1), and its first message then ends these with a segmentation fault.
printf '%s\n' "PMIxCliTmpDirBase=$base/pmix" PMIxCollFence=ring >"$base/mpi.conf"
for _ in {1..50}; do [[ -S $base/munge/socket ]] && break; sleep 0.1; done
slurmctld -D -i -f "$SLURM_CONF" >"$base/log/slurmctld.log" 2>&1 &
pids+=($!)
for ((i = 1; i <= nodes; i++)); do
    unshare --mount sh -c 'mount -t tmpfs -o mode=700 tmpfs "$1" && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec slurmd -D -N "$2" -f "$SLURM_CONF"' \
        slurmd "$base/pmix" "n$i" >"$base/log/slurmd-n$i.log" 2>&1 &
    pids+=($!)
    # Tests end a node by its process.
    echo $! >"$base/spool/n$i.slurmd"
done
export CLUSTER_FOLDER=$base
for _ in {1..300}; do
    [[ $(sinfo --noheader --states=idle --format=%D 2>/dev/null) == "$nodes" ]] && break
    sleep 0.1
done
[[ $(sinfo --noheader --states=idle --format=%D 2>/dev/null) == "$nodes" ]] || { echo "$0: the nodes did not come up" >&2; exit 1; }
up=1
"$@"
