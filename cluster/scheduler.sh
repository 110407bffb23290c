#!/usr/bin/env bash
# Start the scheduler of a cluster. One a cluster; --help tells the rest.
set -euo pipefail
# shellcheck source=options.sh
source "$(dirname "${BASH_SOURCE[0]}")/options.sh"

usage() {
    cat <<END
Usage: $0 [OPTIONS]

Start a Dask scheduler, which ends at SIGTERM or Ctrl-C. Whoever reaches its port can run code on
the cluster: tcp and ucx neither encrypt nor ask who it is, and ucx listens on every interface.

  --device cpu|gpu         What the workers compute on (cpu). With gpu scheduler and clients need a
                           GPU too, since they hold empty examples of the results.
  --protocol tcp|ucx       Transport (tcp). ucx moves data from GPU to GPU.
  --interface NAME         Network interface whose address workers and clients are told.
  --host ADDRESS           The address itself, instead.
  --port N                 Port (8786).
  --dashboard ADDRESS      Where the dashboard is (127.0.0.1:8787, for this machine alone).
  --scheduler-file FILE    File, on storage that all nodes share, to write the address to.
  --print                  Print the command and its variables, and do not start it.
  -h, --help               Show this.

A client of a cluster with ucx on GPUs sets the same variables as the scheduler (--print shows
them). With DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT=True UCX sees which adapter is near the GPU.
END
}

device=cpu protocol=tcp interface='' host='' port=8786 dashboard=127.0.0.1:8787 file='' print=no
while (($#)); do
    case $1 in
        --device | --protocol | --interface | --host | --port | --dashboard) value "$@" ;;&
        --scheduler-file) value "$@" ;;&
        --device) device=$2 && shift ;;
        --protocol) protocol=$2 && shift ;;
        --interface) interface=$2 && shift ;;
        --host) host=$2 && shift ;;
        --port) port=$2 && shift ;;
        --dashboard) dashboard=$2 && shift ;;
        --scheduler-file) file=$2 && shift ;;
        --print) print=yes ;;
        -h | --help) usage && exit ;;
        *) unknown "$1" ;;
    esac
    shift
done
one_of --device "$device" cpu gpu
one_of --protocol "$protocol" tcp ucx
whole --port "$port" 1 65535
checked_place "$interface" "$host"
if [[ -n $file && ! -d $(dirname "$file") ]]; then
    refuse "--scheduler-file" "'$file', whose folder is not there" "a file in a folder" \
        "Make the folder, on storage that all nodes share"
fi
checked_packages "$protocol"

if [[ $protocol == ucx ]]; then
    # UCX warns of variables that RAPIDS sets for other versions of it.
    set_variable UCX_WARN_UNUSED_ENV_VARS n
    if [[ $device == gpu ]]; then
        set_variable DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT True
    fi
fi
command=(dask scheduler --protocol "$protocol" --port "$port" --dashboard-address "$dashboard")
[[ -n $interface ]] && command+=(--interface "$interface")
[[ -n $host ]] && command+=(--host "$host")
if [[ -n $file ]]; then
    command+=(--scheduler-file "$file")
    # Workers that start first would take the address of a scheduler that is gone.
    [[ $print == no ]] && rm -f -- "$file"
fi
run "$print" "${command[@]}"
