#!/usr/bin/env bash
# Runs a master and three region servers as separate processes on this machine until Ctrl-C.
#
# usage: deploy/local-cluster.sh [DATA_DIRECTORY] [FLAG_OF_EVERY_SERVER ...]
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

terrane="$(find_binary)"
mkdir -p "$data"
pipes="$(mktemp -d)"
master_pid=""
server_pids=()
server_arguments=()
declare -A output

stop() {
    trap - EXIT INT TERM
    # Servers first, so that they can report their stop to the master.
    if ((${#server_pids[@]})); then
        kill -TERM "${server_pids[@]}" 2>/dev/null || true
        wait "${server_pids[@]}" 2>/dev/null || true
    fi
    if [[ -n $master_pid ]]; then
        kill -TERM "$master_pid" 2>/dev/null || true
        wait "$master_pid" 2>/dev/null || true
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

start master master --data "$data/master" --listen 127.0.0.1:7600 --console 127.0.0.1:7610
master_pid=$started_pid
await_ready master
for i in 0 1 2; do
    arguments=(--data "$data/server-$i" --listen "127.0.0.1:770$i" --console "127.0.0.1:771$i" --masters 127.0.0.1:7600 "${server_flags[@]}")
    start "server-$i" server "${arguments[@]}"
    server_pids+=("$started_pid")
    server_arguments+=("${arguments[*]}")
done
for i in 0 1 2; do await_ready "server-$i"; done

echo "ready: TERRANE_MASTERS=127.0.0.1:7600, data and logs in $data; press Ctrl-C to stop"
# The cluster survives the loss of a server: report it and continue. Without its only master, stop.
alive=("$master_pid" "${server_pids[@]}")
while ((${#alive[@]} > 1)); do
    status=0
    wait -n -p ended "${alive[@]}" || status=$?
    [[ $ended == "$master_pid" ]] && break
    for i in 0 1 2; do
        if [[ ${server_pids[i]} == "$ended" ]]; then
            echo "server-$i exited with status $status; start it again with:" >&2
            echo "  $terrane server ${server_arguments[i]}" >&2
        fi
    done
    still_alive=()
    for pid in "${alive[@]}"; do [[ $pid == "$ended" ]] || still_alive+=("$pid"); done
    alive=("${still_alive[@]}")
done
echo "the cluster has stopped; the logs are in $data" >&2
exit 1
