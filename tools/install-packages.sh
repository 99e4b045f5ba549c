#!/usr/bin/env bash
# Installs every Debian 12 package that building, testing and running Strata needs. Non-interactive; running it again
# changes nothing. Options: --build (default: to build and run), --test (also what the tests need).
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libboost1.81-dev libboost-json1.81-dev
  prometheus-cpp-dev libssl-dev libyaml-cpp-dev libspdlog-dev libfmt-dev libcli11-dev libexpected-dev
  libpcre2-dev libutf8proc-dev libhwloc-dev libxxhash-dev zlib1g-dev libzstd-dev libsqlite3-dev
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev libboost-context1.81-dev
  python3 python3-jinja2 curl xz-utils clang-format-19 prometheus
)

want=("${build_packages[@]}")
for arg in "$@"; do
  case "$arg" in
    --build) ;;
    --test) want+=("${test_packages[@]}") ;;
    -h|--help) sed -n '2,3s/^# //p' "$0"; exit 0 ;;
    *) echo "install-packages.sh: unknown option $arg (known: --build, --test)" >&2; exit 2 ;;
  esac
done
# node comes with many machines; Debian's own is fine (the test clients run on the npm package node@20).
if [[ " $* " == *" --test "* ]] && ! command -v npm >/dev/null; then want+=(nodejs npm); fi

missing=()
for package in "${want[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install-packages: everything is installed already"
  exit 0
fi

sudo=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || { echo "install-packages.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 2; }
  sudo=(sudo)
fi

# Some of the packages (prometheus) start a service when they are installed. Nobody asked for that: a policy that
# refuses is put in place for the time of the installation.
policy=/usr/sbin/policy-rc.d
made_policy=0
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
  "${sudo[@]}" chmod +x "$policy"
  made_policy=1
fi
cleanup() { if ((made_policy)); then "${sudo[@]}" rm -f "$policy"; fi; }
trap cleanup EXIT

export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -q
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
