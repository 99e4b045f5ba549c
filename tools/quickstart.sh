#!/usr/bin/env bash
# From a fresh clone to an answering cluster: installs the Debian packages, builds, and starts the embedded demo model on the
# host device. Ends with "ready http://..." on stdout and stays in the foreground; Ctrl-C stops everything.
#
#   tools/quickstart.sh [--detach] [any other option of `strata up`, e.g. --listen 127.0.0.1:8081]
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in -h|--help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

tools/install-packages.sh --build >&2
cmake --preset release -DSTRATA_BUILD_TESTS=OFF >&2
cmake --build --preset release >&2

exec build/release/bin/strata up --config configs/demo.yaml "$@"
