"""Conversations that come back: a prompt is read once, whatever happens in between. Answers are greedy and compared to the letter; what was reused
is what the answers say (usage.prompt_tokens_details.cached_tokens). Nothing here is timed."""
import json
import os
import tempfile
import unittest

from support import Cluster, strata, wait_for

ANSWER = 12
TAIL = 40  # tokens that a template writes around the last message and the answer; histories are far longer
# One sequence on the device: every switch has to go through what is parked.
ONE = {"engine.sequences": "1"}
WORDS = ("river table seven north paper light stone garden music winter letter green clock bread window seed horse number silver road "
         "small early quiet plain heavy clear warm deep").split()


def filler(seed, count):
    """The same words for the same seed; two seeds differ from the first word on."""
    words, state = [f"{seed:x}"], seed * 2654435761 + 1
    while len(words) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        words.append(WORDS[(state >> 33) % len(WORDS)])
    return " ".join(words)


def user(text):
    return {"role": "user", "content": text}


class Chat:
    """A client's view: the messages so far, and the last answer."""

    def __init__(self, cluster, messages):
        self.cluster, self.messages = cluster, messages

    def ask(self, text=None):
        """The next turn (text: what the user says), or the same request again; (text of the answer, prompt tokens, reused tokens)"""
        if text is not None:
            self.messages = [*self.messages, {"role": "assistant", "content": self.answer or "-"}, user(text)]
        body = {"model": "default", "messages": self.messages, "temperature": 0, "max_tokens": ANSWER, "enable_thinking": False}
        status, answer, _ = self.cluster.request("POST", "/v1/chat/completions", body)
        if status != 200:
            raise AssertionError(f"{status} {answer}")
        self.answer = answer["choices"][0]["message"]["content"] or ""
        usage = answer["usage"]
        return self.answer, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def listed(cluster):
    result = strata("conversations", "list", "--json", "--run-dir", cluster.run_dir)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def parked(cluster, prompt, tier="memory", conversations=1):
    """Waits until states of that many conversations are parked that reach the end of a prompt of so many tokens: it happens beside the
    answers, a while after them."""
    def known():
        return {each["conversation"] for each in listed(cluster)["snapshots"] if tier in each["tiers"] and each["position"] >= prompt - TAIL}
    wait_for(lambda: len(known()) >= conversations, 60, f"{conversations} conversations of {prompt} tokens in {tier}")


class Parking(unittest.TestCase):
    def check_reused(self, prompt, reused, new_tokens):
        self.assertLess(reused, prompt)
        self.assertGreaterEqual(reused, prompt - new_tokens - TAIL, "read again what was known")

    def test_alternating_conversations_are_read_once_and_go_on_as_if_alone(self):
        with Cluster(ONE) as cluster:
            chats = [Chat(cluster, [user(filler(seed, 300))]) for seed in range(1, 5)]
            cold = [chat.ask() for chat in chats]
            self.assertEqual([reused for _, prompt, reused in cold if reused > TAIL], [])
            parked(cluster, min(prompt for _, prompt, _ in cold), conversations=4)
            for _ in range(2):
                for chat, (text, prompt, _) in zip(chats, cold):
                    again, _, reused = chat.ask()
                    self.assertEqual(again, text)
                    self.check_reused(prompt, reused, 0)
            # The next turn has the whole history in front of it.
            for chat, (_, before, _) in zip(chats, cold):
                _, prompt, reused = chat.ask("And then?")
                self.assertGreaterEqual(reused, before - TAIL)
                self.check_reused(prompt, reused, ANSWER)

    def test_conversations_survive_a_restart_on_disk(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            settings = {**ONE, "conversations.disk_folder": os.path.join(folder, "conversations"), "conversations.disk_free_min": "0"}
            with Cluster(settings) as cluster:
                first = [Chat(cluster, [user(filler(seed, 300))]).ask() for seed in (1, 2)]
                parked(cluster, min(prompt for _, prompt, _ in first), "disk", conversations=2)
            with Cluster(settings) as cluster:
                for seed, (text, prompt, _) in zip((1, 2), first):
                    again, _, reused = Chat(cluster, [user(filler(seed, 300))]).ask()
                    self.assertEqual(again, text)
                    self.check_reused(prompt, reused, 0)

    def test_twenty_conversations_rotate_in_a_budget_of_five(self):
        with Cluster(ONE) as cluster:  # how large one is
            _, prompt, _ = Chat(cluster, [user(filler(100, 100))]).ask()
            parked(cluster, prompt)
            one = listed(cluster)["memory"]["used_bytes"]
        budget = 5 * one
        with Cluster({**ONE, "conversations.ram_budget": str(budget), "conversations.disk_budget": "0"}) as cluster:
            def check_budget():
                used = listed(cluster)["memory"]["used_bytes"]
                self.assertLessEqual(used, budget)
                return used
            chats = [Chat(cluster, [user(filler(seed, 100))]) for seed in range(1, 21)]
            cold = []
            for chat in chats:
                cold.append(chat.ask()[0])
                check_budget()
            for _ in range(2):
                for chat, text in zip(chats, cold):
                    self.assertEqual(chat.ask()[0], text)
                    check_budget()
            wait_for(lambda: check_budget() > 0, 60, "anything parked")
            self.assertGreater(cluster.metric("strata_conv_evictions_total", cause="budget"), 0)
            self.assertLess(len({each["conversation"] for each in listed(cluster)["snapshots"]}), 20)

    def test_what_is_parked_can_be_listed_moved_and_dropped(self):
        with Cluster(ONE) as cluster, tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            chat = Chat(cluster, [user(filler(1, 300))])
            text, prompt, _ = chat.ask()
            parked(cluster, prompt)

            def command(*arguments):
                return strata("conversations", *arguments, "--run-dir", cluster.run_dir)
            longest = max(listed(cluster)["snapshots"], key=lambda each: each["position"])
            shown = command("show", longest["id"][:12], "--json")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertEqual(len(json.loads(shown.stdout)["tokens"]), longest["position"])
            path = os.path.join(folder, "chat.snapshot")
            self.assertEqual(command("export", longest["id"], path).returncode, 0)
            again = command("export", longest["id"], path)
            self.assertEqual((again.returncode, path in again.stderr), (1, True), again.stderr)
            self.assertEqual(command("drop", "--all").returncode, 0)
            self.assertEqual(listed(cluster)["snapshots"], [])
            gone = command("show", longest["id"])
            self.assertEqual(gone.returncode, 1, gone.stderr)
            imported = command("import", path, "--json")
            self.assertEqual(imported.returncode, 0, imported.stderr)
            self.assertEqual(json.loads(imported.stdout)["id"], longest["id"])
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))
            command("drop", "--all")
            self.assertEqual(command("import", path).returncode, 1)
            self.assertEqual(chat.ask()[0], text)

    def test_the_cache_manager_dies_at_each_step_of_storing_and_loading(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            def armed(step):
                return os.path.join(folder, step)
            storing = ("snapshot-reserved", "snapshot-committed", "snapshot-queued", "snapshot-written")
            loading = ("snapshot-loading", "snapshot-loaded")
            settings = {**ONE, "conversations.park_after_ms": "0", "conversations.disk_folder": os.path.join(folder, "conversations"),
                        "conversations.disk_free_min": "0", "supervisor.backoff_ms": "50", "supervisor.backoff_max_ms": "100"}
            places = ",".join(f"{step}@{armed(step)}" for step in storing + loading)
            with Cluster(settings, environment={"STRATA_TEST_CRASH_AT": places}) as cluster:
                def crash(step, meanwhile):
                    pid = cluster.process_of("cache-manager")["pid"]
                    with open(armed(step), "w"):
                        pass
                    meanwhile()
                    wait_for(lambda: not os.path.exists(armed(step)), 20, f"somebody comes by {step}")
                    cluster.wait_restarted("cache-manager", pid)
                for number, step in enumerate(storing):
                    with self.subTest(step):
                        chat = Chat(cluster, [user(filler(10 + number, 150))])
                        crash(step, chat.ask)
                        text = chat.answer
                        again, prompt, _ = chat.ask()
                        self.assertEqual(again, text)
                        Chat(cluster, [user(filler(20 + number, 150))]).ask()  # takes the place on the device
                        parked(cluster, prompt, "disk")
                        again, _, reused = chat.ask()
                        self.assertEqual(again, text)
                        self.check_reused(prompt, reused, 0)
                chat = Chat(cluster, [user(filler(30, 150))])
                text, prompt, _ = chat.ask()
                Chat(cluster, [user(filler(31, 150))]).ask()
                parked(cluster, prompt, "disk")
                for step in loading:
                    with self.subTest(step):
                        # Nothing is in memory behind a restart, so the next turn has to load.
                        cluster.wait_restarted("cache-manager", cluster.kill("cache-manager"))
                        wait_for(lambda: listed(cluster)["snapshots"], 20, "the disk tier offers its snapshots")
                        crash(step, lambda: self.assertEqual(chat.ask()[0], text))
                        Chat(cluster, [user(filler(32, 150))]).ask()
                        self.assertEqual(chat.ask()[0], text)


if __name__ == "__main__":
    unittest.main()
