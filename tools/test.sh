#!/usr/bin/env bash
# Installs what is needed, builds and runs all tests.
#
#   tools/test.sh                     unit, golden, cluster and client tests of the release build
#   tools/test.sh --sanitize=subset   first the parts where memory and threads matter most, under ASan+UBSan and TSan
#   tools/test.sh --sanitize=all      first every unit and golden test under ASan, UBSan and TSan (long)
#   tools/test.sh --only=REGEX        only the tests whose name matches
set -euo pipefail
cd "$(dirname "$0")/.."

sanitize=none
only=.
for arg in "$@"; do
  case "$arg" in
    --sanitize=subset|--sanitize=all|--sanitize=none) sanitize="${arg#*=}" ;;
    --only=*) only="${arg#*=}" ;;
    -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option $arg (see --help)" >&2; exit 2 ;;
  esac
done

tools/install-packages.sh --test
jobs="$(nproc)"

# The clients under test run on the npm package node@20, whatever node the machine has.
if [[ ! tests/e2e/node_modules/.package-lock.json -nt tests/e2e/package-lock.json ]]; then
  npm --prefix tests/e2e ci --no-audit --no-fund
fi

# The subset: lock-free and shared-memory code under TSan, everything that parses foreign bytes under ASan and UBSan.
tsan_targets=(shm_test actor_test model_test expert_dispatch_test cpu_expert_worker_test)
asan_targets=(base_test gguf_test gguf_golden_test gguf_fuzz_replay_test tokenizer_test chat_template_test quant_test shm_test)
sanitized() {  # PRESET TARGETS...
  local preset="$1"; shift
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" --target "$@"
  local pattern; pattern="$(IFS='|'; echo "$*")"
  ctest --test-dir "build/$preset" --no-tests=error --output-on-failure -j "$jobs" -R "^(${pattern})$"
}
case "$sanitize" in
  subset)
    sanitized tsan "${tsan_targets[@]}"
    sanitized asan "${asan_targets[@]}"
    ;;
  all)
    for preset in asan ubsan tsan; do
      cmake --preset "$preset" >/dev/null
      cmake --build --preset "$preset"
      ctest --preset "$preset" -j "$jobs"
    done
    ;;
esac

# The device for GPUs: compiled for one architecture, to see that they do. Where there is a GPU, tools/gpu-tests.sh runs them.
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
  cmake --preset cuda -DSTRATA_CUDA_ARCHITECTURES=90-real
  cmake --build --preset cuda --target strata_cuda_device cuda_device_test_gpu
  echo "cuda: the device compiles for sm_90"
else
  echo "cuda: skipped: nvcc is not installed"
fi

cmake --preset release -DSTRATA_BUILD_TESTS=ON
cmake --build --preset release
ctest --preset release --no-tests=error -j "$jobs" -R "$only"
