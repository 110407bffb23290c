# What scheduler.sh and worker.sh have in common; they source it.
# shellcheck shell=bash

# refuse WHAT FOUND ALLOWED DO: end with what is wrong, in words.
refuse() {
    printf 'Error: %s: found %s; allowed: %s. %s.\n' "$1" "$2" "$3" "$4" >&2
    exit 2
}

# value OPTION [VALUE...]: refuse an option without its value.
value() {
    if (($# < 2)) || [[ -z $2 || $2 == --* ]]; then
        refuse "$1" "no value" "a value after it" "See $0 --help"
    fi
}

unknown() {
    refuse "options" "'$1'" "those of $0 --help" "Check how it is spelled"
}

# one_of OPTION FOUND WORD...
one_of() {
    local option=$1 found=$2 word
    shift 2
    for word in "$@"; do
        [[ $found == "$word" ]] && return
    done
    refuse "$option" "'$found'" "$*" "Choose one of these"
}

# whole OPTION FOUND LEAST MOST: refuse what is no whole number in a range.
whole() {
    if ! [[ $2 =~ ^[0-9]{1,9}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
        refuse "$1" "'$2'" "a whole number from $3 to $4" "Choose another"
    fi
}

# checked_place INTERFACE HOST: refuse a network interface that is not here.
checked_place() {
    if [[ -n $1 && -n $2 ]]; then
        refuse "--host" "$2 beside --interface $1" "one of them" "Leave one out"
    fi
    if [[ -n $1 && ! -e /sys/class/net/$1 ]]; then
        local here=(/sys/class/net/*)
        refuse "--interface" "'$1'" "${here[*]##*/}" "Choose one of these"
    fi
}

# checked_packages PROTOCOL: refuse to start where the environment is not active.
checked_packages() {
    local name
    for name in dask python3; do
        if ! command -v "$name" >/dev/null; then
            refuse "PATH" "no $name on it" "an environment in which ecg_dask is installed" \
                "Activate it, for example with: source .venv/bin/activate"
        fi
    done
    if [[ $1 == ucx ]] && ! has_module distributed_ucxx; then
        refuse "--protocol" "ucx without the package distributed-ucxx" "tcp" \
            "Install the extra gpu-cu12 or gpu-cu13, or choose tcp"
    fi
}

has_module() {
    python3 -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' "$1"
}

# set_variable NAME VALUE: set a variable for the command, unless the user set it.
variables=()
set_variable() {
    if [[ -z ${!1+set} ]]; then
        export "$1=$2"
    fi
    variables+=("$1=${!1}")
}

# run PRINT COMMAND...: become the command, so that signals reach it, or print it.
run() {
    local only_print=$1
    shift
    if [[ $only_print == yes ]]; then
        ((${#variables[@]})) && printf '%q ' "${variables[@]}"
        printf '%q ' "$@"
        printf '\n'
    else
        exec "$@"
    fi
}
