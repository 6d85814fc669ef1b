# Makes .venv, or completes it: sourced by mxtw and ./test, which say which pins they need.
# shellcheck shell=bash
#
#   set_up PINS MARKER      $here is the checkout; MARKER becomes a copy of PINS once all of it is installed
#
# All messages go to stderr: stdout belongs to the command that follows.

say() { printf 'mxt: %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  printf '  hint: %s\n' "$@" >&2
  exit 1
}

is_python_311() {
  "$1" -I -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython")' \
    > /dev/null 2>&1
}

find_python() {
  if [[ -n ${MXT_PYTHON-} ]]; then
    is_python_311 "$MXT_PYTHON" || fail "MXT_PYTHON '$MXT_PYTHON' is not a working Python 3.11" \
      "the toolchain is locked for CPython 3.11; name one, or unset MXT_PYTHON"
    python=$MXT_PYTHON
    return
  fi
  local candidate
  for candidate in python3.11 python3 python; do
    if is_python_311 "$candidate"; then
      python=$candidate
      return
    fi
  done
  fail "no Python 3.11 was found, and the toolchain is locked for it" \
    "install it (Debian 12: apt-get install python3.11-venv; others: pyenv install 3.11, uv python install 3.11)" \
    "or name one: MXT_PYTHON=/path/to/python3.11 ./mxtw ..."
}

# What pip cannot install: the sandbox, and the compiler with Python's headers that Inductor and Quark use.
system_packages() {
  local missing=()
  command -v bwrap > /dev/null || missing+=(bubblewrap)
  command -v g++ > /dev/null || missing+=(g++)
  local facts='import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
  "$python" -I -c "$facts" || missing+=(python3.11-dev)
  "$python" -I -c 'import venv, ensurepip' 2> /dev/null || missing+=(python3.11-venv)
  ((${#missing[@]})) || return 0
  if ((EUID == 0)) && command -v apt-get > /dev/null; then
    say "installing ${missing[*]} with apt-get"
    if { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      "${missing[@]}"; } > "$here/.venv/apt.log" 2>&1 < /dev/null; then
      return 0
    fi
    say "apt-get failed; its output is in $here/.venv/apt.log"
  fi
  local package
  for package in "${missing[@]}"; do
    case $package in
      bubblewrap) say "'bwrap' is missing: actions will run without a sandbox. To have one: apt-get install bubblewrap" ;;
      g++) say "'g++' is missing: compiled kernels and quantization will fail. Install it: apt-get install g++" ;;
      python3.11-dev) say "Python's headers are missing: compiled kernels and quantization will fail. Install them: apt-get install python3.11-dev" ;;
      python3.11-venv) fail "this Python 3.11 cannot make environments (no venv)" "apt-get install python3.11-venv" ;;
    esac
  done
}

# Follows pip until it ends: how many distributions it has fetched, then how many are in place.
follow() {
  local pid=$1 log=$2 all=$3 before=$4 started=$SECONDS last='' line fetched placed
  while kill -0 "$pid" 2> /dev/null; do
    fetched=$(grep -c -e '^Collecting ' -e '^Requirement already satisfied' "$log" || true)
    if grep -q '^Installing collected packages' "$log"; then
      placed=$(find "$site" -maxdepth 1 -name '*.dist-info' | wc -l)
      line="installing: $((placed - before < 0 ? 0 : placed - before)) new of $all"
    else
      line="downloading: $fetched of $all"
    fi
    if [[ -t 2 ]]; then
      printf '\rmxt: %s, %d s \033[K' "$line" $((SECONDS - started)) >&2
    elif [[ $line != "$last" ]] && ((SECONDS % 10 == 0)); then
      say "$line, $((SECONDS - started)) s"
      last=$line
    fi
    sleep 1
  done
  [[ -t 2 ]] && printf '\r\033[K' >&2
  return 0
}

free_mb() { df -Pk "$here/.venv" | awk 'NR==2 {print int($4/1024)}'; }

explain_failure() {
  local log=$1
  if grep -q -i 'no space left' "$log" || (($(free_mb) < 5)); then
    fail "the disk is full: $(free_mb) MB left in $here/.venv" \
      "make room (the environment takes 2.1 GB) and run the same command again; it goes on where it stopped"
  elif grep -q -i -E 'name resolution|network is unreachable|connection (refused|reset|aborted|broken)|timed? ?out|no route to host|Max retries|No matching distribution' "$log"; then
    fail "the packages cannot be fetched: $(grep -i -E '^ *ERROR' "$log" | tail -1 | cut -c1-300)" \
      "check the network and pip's settings ('pip config list', http_proxy), then run the same command again; it goes on where it stopped" \
      "pip's output: $log"
  fi
  tail -5 "$log" >&2
  fail "setting up .venv failed (the last lines are above)" "all of it: $log" "run the same command again; it goes on where it stopped"
}

set_up() {
  local pins=$1 marker=$2 venv=$here/.venv log=$here/.venv/setup.log python='' pid
  local all
  all=$(grep -c '==' "$pins")
  mkdir -p "$venv" 2> /dev/null || fail "cannot make $venv" "is the folder writable, the disk full?"

  # two at once: the second waits, then finds the marker
  exec 9> "$venv/setup.lock"
  if command -v flock > /dev/null && ! flock -n 9; then
    say "another mxtw is making the environment; waiting for it"
    flock 9
  fi
  if [[ -f $marker ]] && cmp -s "$pins" "$marker" && [[ -x $venv/bin/python ]]; then
    exec 9>&-
    return 0
  fi

  find_python
  if ! is_python_311 "$venv/bin/python" || ! "$venv/bin/python" -I -m pip --version > /dev/null 2>&1; then
    # never made, half made, or its Python is gone
    rm -rf "$venv"/{bin,lib,lib64,include,share,etc,pyvenv.cfg,installed*.txt}
    local free
    free=$(free_mb)
    if ((all > 50 && free < 2700)); then
      fail "the environment needs 2700 MB in $venv, and $free MB are free" "make room, then run the same command again"
    fi
    ((all > 50)) && say "first use: making .venv with $all packages: 0.45 GB to download, 2.1 GB on disk, about two minutes"
    system_packages
    "$python" -I -m venv "$venv" > "$log" 2>&1 || explain_failure "$log"
  else
    system_packages
    say "completing .venv: what $(basename "$pins") asks for and is not there yet ($all packages in all)"
  fi

  site=$venv/lib/python3.11/site-packages
  # a killed pip leaves folders without RECORD, which it would take for installed, and ~renamed ones
  local folder
  for folder in "$site"/*.dist-info; do
    [[ -e $folder && ! -f $folder/RECORD ]] && rm -rf "$folder"
  done
  rm -rf "$site"/~* "$venv/tmp"
  mkdir -p "$venv/tmp"

  local before started=$SECONDS
  before=$(find "$site" -maxdepth 1 -name '*.dist-info' | wc -l)
  # the pins are the whole closure: resolving again could only add to it. Debian's pip 23.0 would install what has
  # no wheel in an old way that leaves no record of its files, which the lock is about: hence --use-pep517
  # pip inherits the lock: should this script be killed, the next one waits for pip to end
  TMPDIR=$venv/tmp PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
    "$venv/bin/python" -I -m pip install --no-deps --use-pep517 --progress-bar off -r "$pins" > "$log" 2>&1 < /dev/null &
  pid=$!
  trap 'kill "$pid" 2> /dev/null; wait "$pid" 2> /dev/null; printf "\n" >&2; say "interrupted; run the same command again, it goes on where it stopped"; exit 8' INT TERM
  follow "$pid" "$log" "$all" "$before"
  wait "$pid" || explain_failure "$log"
  trap - INT TERM
  rm -rf "$venv/tmp"
  # the lock beside the pins says what must be there now; say so at once, not in the middle of a build
  if [[ -f ${pins%.txt}.lock.json ]] \
    && ! "$venv/bin/python" -I -S "$here/mxt/__main__.py" toolchain check --contents --lock "${pins%.txt}.lock.json" > "$log" 2>&1; then
    cat "$log" >&2
    fail "what pip installed is not what the toolchain is locked to" \
      "torch must be the CPU build (its version ends in +cpu): give pip the source of PyTorch's CPU wheels" \
      "(PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS), then run the same command again"
  fi
  cp "$pins" "$marker.new" && mv "$marker.new" "$marker" || fail "cannot write $marker" "is the disk full?"
  say "environment ready after $((SECONDS - started)) s"
  exec 9>&-
}
