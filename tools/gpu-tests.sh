#!/usr/bin/env bash
# Tests and benchmarks of the CUDA kernels on a machine with a GPU. They build from source with a compiler, CMake, ninja and nvcc;
# the few libraries come from the folder sdk/ of a portable installation (docs/testing.md), or from the system.
#
#   tools/gpu-tests.sh build [--source DIR] [--sdk DIR] [--arch 90] [--build DIR]
#   tools/gpu-tests.sh tests|memcheck|racecheck|bench --out DIR [--build DIR] [--only REGEX] [--seconds 540]
#   tools/gpu-tests.sh cluster --out DIR --bin DIR [--source DIR] [--only REGEX] [--seconds 540]
#
# Each program leaves NAME.json (where it got so far), NAME.log and NAME.status (its exit code) in DIR/tests, DIR/memcheck, ...
# After --seconds no further program begins and the exit code is 3: the same call again goes on with those that have no status yet.
# Otherwise the exit code is 1 if any program failed, and 77 if all were skipped for want of a GPU. memcheck and racecheck run the tests under compute-sanitizer;
# cluster runs the cluster's tests (tests/cluster, Python 3) with the programs in --bin and device.type: cuda.
set -euo pipefail

usage() { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit "$1"; }
die() { echo "gpu-tests.sh: $*" >&2; exit 2; }

here="$(cd "$(dirname "$0")/.." && pwd)"
mode="${1:-}"
case "$mode" in
  build|tests|memcheck|racecheck|bench|cluster) shift ;;
  -h|--help) usage 0 ;;
  *) usage 2 >&2 ;;
esac

source="$here" bin="$here/bin" sdk="" arch=native build="" out="" only=. seconds=540
[[ -d "$here/sdk" ]] && sdk="$here/sdk"
while (($#)); do
  (($# >= 2)) || die "$1 needs a value"
  case "$1" in
    --source) source="$2" ;;
    --sdk) sdk="$2" ;;
    --bin) bin="$2" ;;
    --arch) arch="$2" ;;
    --build) build="$2" ;;
    --out) out="$2" ;;
    --only) only="$2" ;;
    --seconds) seconds="$2" ;;
    *) die "unknown option $1 (see --help)" ;;
  esac
  shift 2
done
[[ -n "$build" ]] || build="$source/build/gpu"

if [[ "$mode" == build ]]; then
  [[ -f "$source/CMakeLists.txt" ]] || die "$source has no CMakeLists.txt; --source names a checkout"
  generator=()
  command -v ninja >/dev/null && generator=(-G Ninja)
  cmake -S "$source" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DSTRATA_PARTS=kernels -DSTRATA_CUDA=ON \
    -DSTRATA_BUILD_TESTS=ON -DSTRATA_BUILD_BENCHMARKS=ON -DSTRATA_CUDA_ARCHITECTURES="$arch" -DSTRATA_WARNINGS_AS_ERRORS=OFF \
    ${sdk:+-DCMAKE_PREFIX_PATH="$sdk"}
  targets=(strata_cuda_tests)
  cmake --build "$build" --target help | grep -q strata_cuda_benchmarks && targets+=(strata_cuda_benchmarks)
  exec cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}"
fi

[[ -n "$out" ]] || die "--out DIR is missing"
run=()
case "$mode" in
  tests) programs=("$build"/tests/bin/*_gpu) ;;
  bench) programs=("$build"/bench/cuda_*) ;;
  cluster)
    programs=("$source"/tests/cluster/{answers,failures,lifecycle}_test.py)
    run=(python3)
    [[ -x "$bin/strata" ]] || die "no programs in $bin; --bin names their folder"
    export STRATA_BIN="$bin" STRATA_TEST_SETTINGS=device.type=cuda,device.kv=float32
    ;;
  memcheck|racecheck)
    programs=("$build"/tests/bin/*_gpu)
    sanitizer="$(command -v compute-sanitizer || true)"
    [[ -n "$sanitizer" ]] || sanitizer=/usr/local/cuda/bin/compute-sanitizer
    [[ -x "$sanitizer" ]] || { echo "$mode: skipped: compute-sanitizer is not installed"; exit 77; }
    run=("$sanitizer" --tool "$mode" --error-exitcode 86 --print-limit 20)
    ;;
esac
[[ -e "${programs[0]}" ]] || die "nothing to run in $build; first: tools/gpu-tests.sh build"

mkdir -p "$out/$mode"
passed=0 failed=0 left=0
for program in "${programs[@]}"; do
  name="$(basename "$program")"
  [[ "$name" =~ $only ]] || continue
  base="$out/$mode/$name"
  if [[ ! -f "$base.status" ]]; then
    rest=$((seconds - SECONDS))
    if ((rest <= 0)); then left=$((left + 1)); continue; fi
    output="--gtest_output=json:$base.json"
    [[ "$mode" == bench ]] && output="--benchmark_out=$base.json --benchmark_out_format=json"
    [[ "$mode" == cluster ]] && output=-v
    start=$SECONDS code=0
    # Two options in one word are two words here.
    # shellcheck disable=SC2086
    timeout --kill-after=10 "$rest" ${run[@]+"${run[@]}"} "$program" $output >"$base.log" 2>&1 || code=$?
    # Cut off by our own limit although it had nearly all the time: that is its result. Otherwise it gets another try.
    if ((code == 124 && rest < seconds * 9 / 10)); then left=$((left + 1)); echo "$mode $name: no time left"; continue; fi
    echo "$code" >"$base.status"
    echo "$mode $name: exit code $code after $((SECONDS - start)) s"
  fi
  case "$(cat "$base.status")" in
    0) passed=$((passed + 1)) ;;
    77) ;;
    *) failed=$((failed + 1)); echo "$mode $name: FAILED, see $base.log" ;;
  esac
done
((left == 0)) || { echo "$mode: $left programs are left; the same call again goes on"; exit 3; }
((failed == 0)) || exit 1
((passed > 0)) || { echo "$mode: nothing ran, see $out/$mode/*.log"; exit 77; }
