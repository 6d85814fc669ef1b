#!/usr/bin/env bash
# Fetches what the contracts are built, tested and checked with, all of it into git-ignored folders:
#
#   contracts/node_modules   forge, anvil and the Solidity compiler, by contracts/package-lock.json (130 MB)
#   contracts/.slither       slither, by contracts/slither.txt (60 MB)
#
# Nothing to do is a matter of milliseconds. After this no network is needed: (cd contracts && node_modules/.bin/forge test)
set -euo pipefail

here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
source "$here/tools/setup.sh"
cd "$here/contracts"
log=$here/contracts/.setup.log

for command in node npm; do
  command -v "$command" > /dev/null \
    || fail "'$command' is missing, and forge and the Solidity compiler come as npm packages" \
      "install Node.js 18 or newer with npm (Debian: apt-get install nodejs npm), then run tools/setup-contracts.sh again"
done

# two at once: the second waits, then finds everything in place
exec 9> .setup.lock
if command -v flock > /dev/null; then flock 9; fi

started=$SECONDS
if ! cmp -s package-lock.json node_modules/.installed; then
  say "fetching forge and the Solidity compiler from npm"
  # lifecycle scripts stay off: the binaries come as packages of their own
  npm ci --ignore-scripts --no-audit --no-fund > "$log" 2>&1 < /dev/null || {
    tail -5 "$log" >&2
    fail "npm could not fetch the packages (its last lines are above)" \
      "check the network and npm's settings ('npm config list'), then run tools/setup-contracts.sh again"
  }
  [[ -x node_modules/.bin/forge && -x node_modules/.bin/anvil ]] \
    || fail "npm installed no forge for this machine" "its packages, as mxt itself, are for Linux on x86-64"
  cp package-lock.json node_modules/.installed
  ready=1
fi

if ! cmp -s slither.txt .slither/.installed; then
  say "fetching slither from PyPI"
  python=''
  find_python
  rm -rf .slither
  { "$python" -I -m venv .slither && PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 .slither/bin/python -I -m pip \
    install --no-deps --quiet -r slither.txt; } > "$log" 2>&1 < /dev/null || {
    tail -5 "$log" >&2
    fail "pip could not install slither (its last lines are above)" \
      "check the network and pip's settings ('pip config list'), then run tools/setup-contracts.sh again"
  }
  cp slither.txt .slither/.installed
  ready=1
fi
rm -f "$log"
if [[ -n ${ready-} ]]; then say "the contracts' tools are ready after $((SECONDS - started)) s"; fi
