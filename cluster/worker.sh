#!/usr/bin/env bash
# Start the workers of one node of a cluster; --help tells how.
set -euo pipefail
# shellcheck source=options.sh
source "$(dirname "${BASH_SOURCE[0]}")/options.sh"

usage() {
    cat <<END
Usage: $0 --scheduler ADDRESS | --scheduler-file FILE [OPTIONS]

Start this node's Dask workers, which end at SIGTERM or Ctrl-C. With --device gpu that is one a GPU
of CUDA_VISIBLE_DEVICES (all GPUs, where it is not set), each with a memory pool of fixed size.

  --scheduler ADDRESS      tcp://HOST:PORT or ucx://HOST:PORT; else \$ECG_DASK_SCHEDULER.
  --scheduler-file FILE    File that the scheduler writes its address to.
  --device cpu|gpu         What to compute on (cpu). All nodes alike.
  --interface NAME         Network interface whose address the others are told.
  --host ADDRESS           The address itself, instead.
  --ports FIRST:LAST       Ports of the workers, one each (any that are free).
  --workers N              Processes, on the CPU (1).
  --threads N              Threads a worker (on the CPU all cores over the workers, on a GPU 1).
  --memory SIZE            Host memory a worker, such as 16GiB (the machine's over its workers).
  --pool SIZE|SHARE        GPU memory pool a worker, such as 40GB, or a share of the GPU (0.8).
                           Half of it may be results; what is more moves to the host.
  --folder DIR             Local folder for what does not fit into memory.
  --name NAME              Name; a number is added to it where there are several workers.
  --wait SECONDS           How long to look for the scheduler (60).
  --print                  Print the command and its variables, and do not start it.
  -h, --help               Show this.

Several workers on one GPU: start this several times with the same CUDA_VISIBLE_DEVICES and a --pool
of at most 0.8 in all.
END
}

scheduler=${ECG_DASK_SCHEDULER:-} file='' device=cpu interface='' host='' ports='' workers=''
threads='' memory='' pool='' folder='' name='' wait=60 print=no
while (($#)); do
    case $1 in
        --scheduler | --scheduler-file | --device | --interface | --host | --ports) value "$@" ;;&
        --workers | --threads | --memory | --pool | --folder | --name | --wait) value "$@" ;;&
        --scheduler) scheduler=$2 && shift ;;
        --scheduler-file) file=$2 && shift ;;
        --device) device=$2 && shift ;;
        --interface) interface=$2 && shift ;;
        --host) host=$2 && shift ;;
        --ports) ports=$2 && shift ;;
        --workers) workers=$2 && shift ;;
        --threads) threads=$2 && shift ;;
        --memory) memory=$2 && shift ;;
        --pool) pool=$2 && shift ;;
        --folder) folder=$2 && shift ;;
        --name) name=$2 && shift ;;
        --wait) wait=$2 && shift ;;
        --print) print=yes ;;
        -h | --help) usage && exit ;;
        *) unknown "$1" ;;
    esac
    shift
done
one_of --device "$device" cpu gpu
whole --wait "$wait" 1 86400
[[ -n $workers ]] && whole --workers "$workers" 1 1024
[[ -n $threads ]] && whole --threads "$threads" 1 1024
if [[ -n $ports ]]; then
    if ! [[ $ports =~ ^([0-9]+)(:([0-9]+))?$ ]]; then
        refuse "--ports" "'$ports'" "FIRST:LAST, such as 9000:9007" "Give a range of ports"
    fi
    first=${BASH_REMATCH[1]} last=${BASH_REMATCH[3]:-${BASH_REMATCH[1]}}
    whole --ports "$first" 1 65535
    whole --ports "$last" "$first" 65535
    if ((last - first + 1 < ${workers:-1})); then
        refuse "--ports" "'$ports' for $workers workers" "a port for each" "Give a longer range"
    fi
fi
checked_place "$interface" "$host"
if [[ $device == gpu && -n $workers ]]; then
    refuse "--workers" "$workers with --device gpu" "nothing: it is one a GPU" \
        "Leave it out, and name GPUs in CUDA_VISIBLE_DEVICES"
fi
if [[ $device == cpu && -n $pool ]]; then
    refuse "--pool" "'$pool' with --device cpu" "nothing: only workers on GPUs have one" \
        "Leave it out, or choose --device gpu"
fi

# The scheduler may be starting at this moment, on another node.
address_in_file() {
    python3 - "$1" "$2" <<'END'
import json, sys, time

path, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
while True:
    try:
        print(json.load(open(path))["address"])
        break
    except (OSError, ValueError, KeyError, TypeError):
        # Not there yet, or half written.
        if time.monotonic() > until:
            sys.exit(1)
        time.sleep(0.2)
END
}

checked_packages tcp
if [[ -n $file ]]; then
    if ! scheduler=$(address_in_file "$file" "$wait"); then
        refuse "--scheduler-file" "no address in '$file' after $wait s" \
            "the file that the scheduler writes" "Check the path, and that the scheduler runs"
    fi
fi
if ! [[ $scheduler =~ ^(tcp|ucx)://[^/:]+:[0-9]+$ || $scheduler =~ ^(tcp|ucx)://\[[0-9a-f:]+\]:[0-9]+$ ]]; then
    refuse "--scheduler" "'$scheduler'" "tcp://HOST:PORT or ucx://HOST:PORT" \
        "Give the address that the scheduler printed, or --scheduler-file"
fi
protocol=${scheduler%%:*}
checked_packages "$protocol"

# Prints the sizes of the pool and of the results in it.
sizes() {
    python3 - "$1" <<'END'
import sys

from dask.utils import parse_bytes

try:
    share = float(sys.argv[1])
except ValueError:
    share = 0.0
if 0 < share < 1:
    print(share, share / 2)
else:
    try:
        size = int(parse_bytes(sys.argv[1]))
    except ValueError:
        size = 0
    if size < 2**20:
        sys.exit(1)
    # RMM allocates in multiples of this.
    size -= size % 256
    print(size, size // 2)
END
}

has_gpu() {
    python3 -c 'import sys; from ecg_dask.gpu.devices import gpus; sys.exit(not gpus())'
}

if [[ $protocol == ucx ]]; then
    # UCX warns of variables that RAPIDS sets for other versions of it.
    set_variable UCX_WARN_UNUSED_ENV_VARS n
fi
if [[ $device == gpu ]]; then
    if ! has_module dask_cuda; then
        refuse "--device" "gpu without the package dask-cuda" "cpu" \
            "Install the extra gpu-cu12 or gpu-cu13"
    fi
    if ! pool_and_spill=$(sizes "${pool:-0.8}"); then
        refuse "--pool" "'$pool'" "a size such as 40GB, or a share of the GPU such as 0.8" \
            "Choose such a size, or leave it out"
    fi
    read -r pool spill <<<"$pool_and_spill"
    if [[ $print == no ]] && ! has_gpu; then
        refuse "--device" "gpu where the driver lists no GPU to use" "cpu" \
            "See what ecg-dask doctor --device gpu says"
    fi
    # KvikIO's threads copy from the page cache; eight read as fast as sixteen.
    set_variable KVIKIO_NTHREADS 8
    # The pool is one allocation: other processes map it once.
    command=(dask cuda worker "$scheduler" --rmm-pool-size "$pool" --rmm-maximum-pool-size "$pool"
        --device-memory-limit "$spill" --nthreads "${threads:-1}")
else
    command=(dask worker "$scheduler" --nworkers "${workers:-1}")
    [[ -n $threads ]] && command+=(--nthreads "$threads")
fi
command+=(--protocol "$protocol" --death-timeout "$wait" --dashboard-address 127.0.0.1:0)
[[ -n $interface ]] && command+=(--interface "$interface")
[[ -n $host ]] && command+=(--host "$host")
[[ -n $ports ]] && command+=(--worker-port "$ports")
[[ -n $memory ]] && command+=(--memory-limit "$memory")
[[ -n $folder ]] && command+=(--local-directory "$folder")
[[ -n $name ]] && command+=(--name "$name")
run "$print" "${command[@]}"
