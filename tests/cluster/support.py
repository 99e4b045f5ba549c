"""A real cluster for a test: started with `strata up` on a free port and a run directory of its own, stopped by pid.

STRATA_BIN names the folder of the programs. STRATA_TEST_SETTINGS ("device.type=cuda,device.kv=float32") holds for every cluster
whose test says nothing else. Standard library only.
"""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("STRATA_BIN", os.path.join(ROOT, "build", "release", "bin"))
DEMO = os.path.join(ROOT, "configs", "demo.yaml")
SETTINGS = dict(setting.split("=", 1) for setting in os.environ.get("STRATA_TEST_SETTINGS", "").split(",") if setting)


def wait_for(condition, seconds, what):
    """Polls until condition() is true; its value. Fails with `what` when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def strata(*arguments, timeout=60, **kwargs):
    """Runs the command to its end; the CompletedProcess with text output."""
    return subprocess.run([os.path.join(BIN, "strata"), *arguments], capture_output=True, text=True, timeout=timeout, **kwargs)


class Cluster:
    def __init__(self, settings=None, config=DEMO, run_dir=None, environment=None):
        self.settings, self.config, self.environment = settings or {}, config, environment or {}
        self.given_run_dir = run_dir
        self.process = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="strata-test-")
        self.run_dir = self.given_run_dir or os.path.join(self.folder, "run")
        self.log_path = os.path.join(self.folder, "log")
        arguments = [os.path.join(BIN, "strata"), "up", "--config", self.config, "--run-dir", self.run_dir, "--listen", "127.0.0.1:0"]
        for name, value in {**SETTINGS, **self.settings}.items():
            arguments += ["--set", f"{name}={value}"]
        self.log = open(self.log_path, "wb")
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True,
                                        env={**os.environ, **self.environment})
        try:
            line = self._first_line(60)
            match = re.fullmatch(r"ready https?://127\.0\.0\.1:(\d+)", line.strip())
            if not match:
                raise AssertionError(f"strata up said {line!r}\n{self.tail()}")
            self.port = int(match.group(1))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _first_line(self, seconds):
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self.process.stdout.readline().decode()), daemon=True)
        reader.start()
        reader.join(seconds)
        if not lines:
            raise AssertionError(f"strata up was silent for {seconds} s\n{self.tail()}")
        return lines[0]

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tail(self, count=4000):
        with open(self.log_path, "rb") as file:
            return file.read()[-count:].decode("utf-8", "replace")

    # --- HTTP

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, parsed JSON or text, headers)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
        with contextlib.suppress(ValueError):
            return response.status, json.loads(text), response.headers
        return response.status, text, response.headers

    def chat(self, content, **fields):
        """The parsed answer of one user message; greedy unless the fields say otherwise."""
        body = {"model": "default", "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}
        status, answer, _ = self.request("POST", "/v1/chat/completions", body)
        if status != 200:
            raise AssertionError(f"chat: {status} {answer}")
        return answer

    def text(self, content, **fields):
        return self.chat(content, **fields)["choices"][0]["message"]["content"]

    def stream(self, content, **fields):
        """Yields the text pieces of a streamed answer."""
        body = {"model": "default", "messages": [{"role": "user", "content": content}], "temperature": 0, "stream": True, **fields}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"stream: {response.status} {response.read()!r}")
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise AssertionError(f"stream: {chunk}")
                for choice in chunk["choices"]:
                    if choice["delta"].get("content"):
                        yield choice["delta"]["content"]

    def metrics(self):
        """{(name, frozenset of label pairs): value}"""
        _, text, _ = self.request("GET", "/metrics")
        values = {}
        for line in text.splitlines():
            match = re.match(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$', line)
            if match:
                labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""))
                values[match.group(1), labels] = float(match.group(3))
        return values

    def metric(self, name, **labels):
        """The sum over the series of a metric that have these labels; fails when there is none."""
        rows = [value for (found, pairs), value in self.metrics().items() if found == name and set(labels.items()) <= pairs]
        if not rows:
            raise AssertionError(f"/metrics has no {name} with {labels}")
        return sum(rows)

    # --- processes

    def status(self):
        result = strata("status", "--json", "--run-dir", self.run_dir)
        if result.returncode != 0:
            raise AssertionError(f"strata status: {result.stderr}")
        return json.loads(result.stdout)

    def process_of(self, name):
        """The entry of `strata status` whose name contains this."""
        found = [entry for entry in self.status()["processes"] if name in entry["name"]]
        if len(found) != 1:
            raise AssertionError(f"{len(found)} processes are called {name}")
        return found[0]

    def segment_prefix(self):
        """What the names of this cluster's shared memory begin with: other clusters may run beside it."""
        with open(f"/proc/{self.process_of('gpu-worker')['pid']}/maps") as maps:
            return re.search(r"/dev/shm/(strata-[0-9a-f]+-)", maps.read()).group(1)

    def kill(self, name, number=signal.SIGKILL):
        """Sends the signal; the pid it went to."""
        pid = self.process_of(name)["pid"]
        os.kill(pid, number)
        return pid

    def wait_restarted(self, name, old_pid, seconds=20):
        def back():
            entry = self.process_of(name)
            return entry["pid"] not in (0, old_pid) and entry["state"] == "ready"
        wait_for(back, seconds, f"{name} back after pid {old_pid}")


def alive(pid):
    """True while the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def segments(prefix):
    return {name for name in os.listdir("/dev/shm") if name.startswith(prefix)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
