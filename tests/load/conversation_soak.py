"""Conversations that go on while processes are killed: two clients, kill -9 at random moments, every answer compared.

    tests/load/conversation_soak.py [--minutes 30] [--clients 2] [--conversations 4] [--seed 1] [--set PATH=VALUE]

An undisturbed cluster without parking gives the answers first. Then the clients go through their conversations in random order, a turn
at a time, while gateway, cache-manager and gpu-worker are killed in turn. Fails on a wrong token, on a snapshot that was on disk before a
kill and is gone after it (the budgets are large, so nothing goes for lack of room), on a conversation that at the end is read again
from the beginning, and on bytes beyond a budget. Not part of the tests: it takes its minutes.
"""
import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from support import Cluster, strata, wait_for  # noqa: E402

SYSTEM = "You are a patient assistant of a small harbour town. " + " ".join(
    f"Rule {number}: answer question {number} of the visitors about boats, birds, bread and bridges in one or two sentences." for number in range(1, 9))
QUESTIONS = ["What is a harbour?", "Tell me about the bridge.", "Who bakes the bread?", "Which birds live here?", "Is there a boat today?",
             "What did the fox say?", "How much is 17 and 25?", "Name three animals.", "Where does the river go?", "Tell me a short story."]
ANSWER_TOKENS = 60
PROCESSES = ("gateway", "cache-manager", "gpu-worker")
BROKEN = (OSError, http.client.HTTPException, AssertionError, ValueError)  # of a gateway that was killed, or is not back yet


def opening(number):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"I am visitor {number}. {QUESTIONS[number % len(QUESTIONS)]}"}]


def ask(cluster, messages):
    """(text, prompt tokens, reused tokens)"""
    status, answer, _ = cluster.request("POST", "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS})
    if status in (500, 503):
        raise AssertionError(f"{status}: {answer}")
    if status != 200:
        raise SystemExit(f"chat: {status} {answer}")
    usage = answer["usage"]
    return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class Conversation:
    """Questions and the answers that an undisturbed cluster gave."""

    def __init__(self, cluster, number, turns):
        self.prompts, self.answers = [], []
        messages = opening(number)
        for turn in range(turns):
            text, _, _ = ask(cluster, messages)
            self.prompts.append(list(messages))
            self.answers.append(text)
            messages = messages + [{"role": "assistant", "content": text},
                                   {"role": "user", "content": QUESTIONS[(number + turn + 1) % len(QUESTIONS)]}]
        self.turn = 0

    def next(self):
        turn = self.turn
        self.turn = (turn + 1) % len(self.prompts)
        return self.prompts[turn], self.answers[turn]


class Soak:
    def __init__(self, cluster, clients, seed):
        self.cluster, self.clients, self.random = cluster, clients, random.Random(seed)
        self.over = threading.Event()
        self.problems, self.counts = [], {"answers": 0, "broken": 0, "prompt_tokens": 0, "reused": 0, **dict.fromkeys(PROCESSES, 0)}
        self.lock = threading.Lock()

    def client(self, conversations, seed):
        chooser = random.Random(seed)
        while not self.over.is_set():
            prompt, expected = chooser.choice(conversations).next()
            self.until_answered(prompt, expected)

    def until_answered(self, prompt, expected):
        deadline = time.monotonic() + 120
        while True:
            try:
                text, prompt_tokens, reused = ask(self.cluster, prompt)
                break
            except BROKEN as error:
                with self.lock:
                    self.counts["broken"] += 1
                if time.monotonic() > deadline:
                    with self.lock:
                        self.problems.append(f"no answer for two minutes: {error}")
                    return 0
                time.sleep(0.05)
        with self.lock:
            self.counts["answers"] += 1
            self.counts["prompt_tokens"] += prompt_tokens
            self.counts["reused"] += reused
            if text != expected:
                self.problems.append(f"a wrong answer: {text!r} instead of {expected!r} after {reused} of {prompt_tokens} reused tokens")
        return reused

    def listing(self):
        result = strata("conversations", "list", "--json", "--run-dir", self.cluster.run_dir)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        return json.loads(result.stdout)

    def wait_ready(self):
        def ready():
            try:
                return self.cluster.request("GET", "/ready")[1].get("status") == "ready" and self.listing()
            except BROKEN:
                return False
        return wait_for(ready, 60, "everything is back")

    def listed_again(self, before):
        """(what is listed, what of `before` is not): a new cache manager lists what is on disk as soon as the gpu-worker has attached."""
        deadline = time.monotonic() + 20
        while True:
            listed = self.wait_ready()
            lost = before - {each["id"] for each in listed["snapshots"]}
            if not lost or time.monotonic() > deadline:
                return listed, lost
            time.sleep(0.1)

    def kill_until(self, deadline):
        """Each kill waits for the recovery from the one before, and then for a random while."""
        said = 0
        while time.monotonic() < deadline:
            time.sleep(self.random.uniform(0.5, 15))
            name = self.random.choice(PROCESSES)
            before = {each["id"] for each in self.wait_ready()["snapshots"] if "disk" in each["tiers"]}
            self.cluster.kill(name)
            self.counts[name] += 1
            listed, lost = self.listed_again(before)
            with self.lock:
                if lost:
                    self.problems.append(f"{len(lost)} of {len(before)} snapshots on disk are gone after a kill of {name}: {sorted(lost)[:3]}")
                for tier in ("memory", "disk"):
                    if listed[tier]["used_bytes"] > listed[tier]["budget_bytes"]:
                        self.problems.append(f"{tier}: {listed[tier]}")
            for problem in self.problems[said:]:
                print(problem)
            said = len(self.problems)
            print(f"{time.strftime('%X')} killed {name}: {len(listed['snapshots'])} snapshots, {self.counts['answers']} answers, "
                  f"{len(self.problems)} problems", flush=True)

    def run(self, minutes):
        threads = [threading.Thread(target=self.client, args=(conversations, number)) for number, conversations in enumerate(self.clients)]
        for thread in threads:
            thread.start()
        try:
            self.kill_until(time.monotonic() + 60 * minutes)
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        self.wait_ready()
        # What is known is found: every conversation's last turn, twice; the second time nearly all of it is there.
        for conversation in sum(self.clients, []):
            prompt, expected = conversation.prompts[-1], conversation.answers[-1]
            self.until_answered(prompt, expected)
            if self.until_answered(prompt, expected) == 0:
                self.problems.append("a conversation that was just read is not found again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--conversations", type=int, default=4, help="of each client (default: 4)")
    parser.add_argument("--turns", type=int, default=6, help="of each conversation (default: 6)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="settings")
    arguments = parser.parse_args()
    settings = {"engine.sequences": "2", "conversations.park_after_ms": "50", **dict(setting.split("=", 1) for setting in arguments.settings)}
    with Cluster({**settings, "conversations.ram_budget": "0", "conversations.disk_budget": "0"}) as undisturbed:
        clients = [[Conversation(undisturbed, client * arguments.conversations + number, arguments.turns)
                    for number in range(arguments.conversations)] for client in range(arguments.clients)]
    with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
        with Cluster({"conversations.ram_budget": "512MiB", "conversations.disk_budget": "2GiB", "conversations.disk_folder": os.path.join(folder, "parked"),
                      **settings}) as cluster:
            soak = Soak(cluster, clients, arguments.seed)
            soak.run(arguments.minutes)
            if soak.problems:
                print(cluster.tail(), file=sys.stderr)
    print(json.dumps(soak.counts))
    for problem in soak.problems:
        print(problem)
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
