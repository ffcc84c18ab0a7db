#!/usr/bin/env bash
# Runs three masters and three region servers as separate processes on this machine until Ctrl-C.
#
# usage: [MASTERS=1|3|5] deploy/local-cluster.sh [DATA_DIRECTORY] [FLAG_OF_EVERY_SERVER ...]
#
# The number of masters is fixed when the data directory is created; without MASTERS, that number or 3 is used.
#
# Uses $TERRANE, the release build of this checkout, its debug build, or `terrane` on the PATH, whichever exists first.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
data="${1:-terrane-data}"
server_flags=("${@:2}")
ready_seconds_max=120

find_binary() {
    local candidate
    for candidate in "${TERRANE:-}" "$checkout/target/release/terrane" "$checkout/target/debug/terrane"; do
        if [[ -n $candidate && -x $candidate ]]; then echo "$candidate"; return; fi
    done
    command -v terrane || { echo "no terrane binary: run \`cargo build --release\` or set TERRANE" >&2; return 1; }
}

# The masters of an existing directory: a single one has no number.
masters_there() {
    if [[ -d $data/master ]]; then echo 1; return; fi
    find "$data" -maxdepth 1 -type d -name 'master-*' 2>/dev/null | wc -l
}

terrane="$(find_binary)"
mkdir -p "$data"
there="$(masters_there)"
masters="${MASTERS:-$((there > 0 ? there : 3))}"
case $masters in
    1 | 3 | 5) ;;
    *) echo "MASTERS must be 1, 3 or 5, not $masters" >&2; exit 2 ;;
esac
if ((there > 0 && there != masters)); then
    echo "$data contains a cluster with $there masters; use MASTERS=$there, or another directory" >&2
    exit 2
fi
pipes="$(mktemp -d)"
master_pids=()
server_pids=()
declare -A output arguments_of name_of

stop() {
    trap - EXIT INT TERM
    # Servers first, so that they can report their stop to the masters.
    if ((${#server_pids[@]})); then
        kill -TERM "${server_pids[@]}" 2>/dev/null || true
        wait "${server_pids[@]}" 2>/dev/null || true
    fi
    if ((${#master_pids[@]})); then
        kill -TERM "${master_pids[@]}" 2>/dev/null || true
        wait "${master_pids[@]}" 2>/dev/null || true
    fi
    rm -rf "$pipes"
}
trap stop EXIT
trap 'echo "stopping"; exit 0' INT TERM

# start NAME ARGUMENT...: standard error goes to a log, standard output to a pipe that await_ready reads.
start() {
    local name=$1 descriptor
    shift
    mkfifo "$pipes/$name"
    "$terrane" "$@" >"$pipes/$name" 2>>"$data/$name.log" &
    started_pid=$!
    name_of[$started_pid]=$name
    arguments_of[$started_pid]="$*"
    exec {descriptor}<"$pipes/$name"
    output[$name]=$descriptor
}

await_ready() {
    local name=$1 line descriptor=${output[$1]}
    while IFS= read -r -t "$ready_seconds_max" line <&"$descriptor"; do
        echo "$name: $line"
        if [[ $line == ready* ]]; then
            # Keep reading, so that the pipe does not fill up.
            cat <&"$descriptor" >>"$data/$name.log" &
            return
        fi
    done
    echo "$name did not become ready; the end of $data/$name.log:" >&2
    tail -n 20 "$data/$name.log" >&2
    exit 1
}

addresses=()
for ((i = 0; i < masters; i++)); do addresses+=("127.0.0.1:760$i"); done
all_masters="$(IFS=,; echo "${addresses[*]}")"
# The masters of a new cluster need each other: all are started before any is awaited.
for ((i = 0; i < masters; i++)); do
    name="master-$((i + 1))"
    ((masters > 1)) || name=master
    arguments=(--data "$data/$name" --listen "${addresses[i]}" --console "127.0.0.1:761$i")
    ((masters == 1)) || arguments+=(--peers "$all_masters")
    start "$name" master "${arguments[@]}"
    master_pids+=("$started_pid")
done
for pid in "${master_pids[@]}"; do await_ready "${name_of[$pid]}"; done
for i in 0 1 2; do
    arguments=(--data "$data/server-$i" --listen "127.0.0.1:770$i" --console "127.0.0.1:771$i" --masters "$all_masters" "${server_flags[@]}")
    start "server-$i" server "${arguments[@]}"
    server_pids+=("$started_pid")
done
for pid in "${server_pids[@]}"; do await_ready "${name_of[$pid]}"; done

echo "ready: TERRANE_MASTERS=$all_masters, data and logs in $data; press Ctrl-C to stop"
# The cluster survives the loss of processes, and a process that was started again is no longer a child of this script. So
# report each end, and continue while any child runs: masters must not stop because all servers were restarted one by one.
alive=("${master_pids[@]}" "${server_pids[@]}")
while ((${#alive[@]})); do
    status=0
    wait -n -p ended "${alive[@]}" || status=$?
    echo "${name_of[$ended]} exited with status $status; start it again with:" >&2
    echo "  $terrane ${arguments_of[$ended]}" >&2
    still_alive=()
    for pid in "${alive[@]}"; do [[ $pid == "$ended" ]] || still_alive+=("$pid"); done
    alive=("${still_alive[@]}")
done
echo "every process that this script started has ended; the logs are in $data" >&2
exit 1
