"""Starts two clusters and runs the client tests against them with Node 20 (the npm package `node`, so that Debian's own does not matter).

    python3 tests/e2e/run.py                   all of *.test.mjs
    python3 tests/e2e/run.py openai_ http      those whose name holds one of these
    python3 tests/e2e/run.py --only=PATTERN    tests whose name matches the pattern
"""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cluster"))
from support import Cluster  # noqa: E402

NODE = os.path.join(HERE, "node_modules", "node", "bin", "node")
# What the second cluster is strict about (narrow.test.mjs).
NARROW = {
    "engine.sequences": "1",
    "gateway.queue_limit": "1",
    "gateway.keepalive_ms": "100",
    "gateway.idle_timeout_ms": "1000",
    "gateway.request_timeout_ms": "3000",
    "gateway.body_bytes_max": "4096",
    "gateway.api_keys": "[first-key, second-key]",
    "gateway.cors_origins": "[https://app.example]",
}


def require_packages():
    if not os.path.exists(NODE):
        print(f"skipped: the npm packages are not installed (cd {os.path.relpath(HERE)} && npm ci)")
        sys.exit(77)


def main(arguments):
    require_packages()
    names = [argument for argument in arguments if not argument.startswith("--")]
    patterns = [f"--test-name-pattern={argument[7:]}" for argument in arguments if argument.startswith("--only=")]
    files = [file for file in sorted(glob.glob(os.path.join(HERE, "*.test.mjs"))) if not names or any(name in os.path.basename(file) for name in names)]
    with Cluster() as cluster, Cluster(NARROW) as narrow:
        environment = {**os.environ, "STRATA_URL": f"http://127.0.0.1:{cluster.port}", "STRATA_LOG": cluster.log_path,
                       "STRATA_NARROW_URL": f"http://127.0.0.1:{narrow.port}"}
        # One file at a time: several look at what the whole cluster does meanwhile.
        command = [NODE, "--test", "--test-concurrency=1", "--test-timeout=600000", "--test-reporter=spec", *patterns, *files]
        return subprocess.run(command, env=environment, timeout=1700).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
