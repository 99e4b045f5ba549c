"""Starts a cluster and runs the client tests against it with Node 20 (the npm package `node`, so that Debian's own does not matter)."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cluster"))
from support import Cluster  # noqa: E402

NODE = os.path.join(HERE, "node_modules", "node", "bin", "node")
if not os.path.exists(NODE):
    print(f"skipped: the npm packages are not installed (cd {os.path.relpath(HERE)} && npm ci)")
    sys.exit(77)

with Cluster() as cluster:
    environment = {**os.environ, "STRATA_URL": f"http://127.0.0.1:{cluster.port}"}
    result = subprocess.run([NODE, "--test", "--test-reporter=spec", os.path.join(HERE, "openai.test.mjs")], env=environment, timeout=300)
sys.exit(result.returncode)
