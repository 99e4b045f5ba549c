"""Conversations that leave the device: parked beside windows, brought back after others, after a kill, from disk after a stop."""
import json
import os
import tempfile
import unittest

from conversations_test import EDITED, NEXT, ONE_PATH, QUESTION, SYSTEM, ask
from support import Cluster, strata, wait_for

SETTINGS = {"experts.slots": "25%", "engine.sequences": "2", "conversations.ram_budget": "64MiB",
            "conversations.park_after_ms": "20"}


def parked(cluster):
    """How many states have been stored; none as long as nobody has counted."""
    return sum(value for (name, labels), value in cluster.metrics().items()
               if name == "strata_conv_save_seconds_count" and ("tier", "ram") in labels)


class Parking(unittest.TestCase):
    def turn(self, cluster, title):
        """One turn of a conversation, parked when this returns: (its messages for the next turn, tokens that are known then)."""
        before = parked(cluster)
        system = {"role": "system", "content": f"{title}. " + SYSTEM["content"]}
        text, prompt, _ = ask(cluster, [system, QUESTION])
        wait_for(lambda: self.quiet(cluster, before), 20, "parked")
        return [system, QUESTION, {"role": "assistant", "content": text}, NEXT], prompt + 39

    def quiet(self, cluster, before):
        """Something has been stored, and nothing more is."""
        now = parked(cluster)
        if now == before or now != getattr(self, "last", None):
            self.last = now
            return False
        return True

    def assert_reused(self, cluster, messages, known, tier=None):
        hits = cluster.metric("strata_conv_lookups_total", result=f"hit_{tier}") if tier else 0
        text, whole, cached = ask(cluster, messages)
        self.assertGreaterEqual(cached, known)
        self.assertLess(cached, whole)
        if tier:
            wait_for(lambda: cluster.metric("strata_conv_lookups_total", result=f"hit_{tier}") > hits, 5, f"a hit in {tier}")
        if ONE_PATH:
            with Cluster({"experts.slots": "25%", "conversations.ram_budget": "0"}) as cold:
                self.assertEqual(ask(cold, messages)[0], text)

    def test_a_conversation_that_others_pushed_out_comes_back(self):
        with Cluster(SETTINGS) as cluster:
            messages, known = self.turn(cluster, "Pushed out")
            for title in ("One", "Two", "Three"):
                self.turn(cluster, title)
            self.assert_reused(cluster, messages, known, "ram")

    def test_a_conversation_survives_its_gpu_worker(self):
        with Cluster(SETTINGS) as cluster:
            messages, known = self.turn(cluster, "Killed")
            cluster.wait_restarted("gpu-worker", cluster.kill("gpu-worker"))
            wait_for(lambda: ask(cluster, [QUESTION])[0], 20, "answers again")
            self.assert_reused(cluster, messages, known, "ram")

    def test_parking_goes_on_after_the_cache_manager_has_died(self):
        with Cluster(SETTINGS) as cluster:
            messages, known = self.turn(cluster, "Before")
            cluster.wait_restarted("cache-manager", cluster.kill("cache-manager"))
            self.assertTrue(ask(cluster, [EDITED])[0])
            for title in ("One", "Two", "Three"):
                self.turn(cluster, title)
            self.assert_reused(cluster, messages, known)

    def test_what_has_just_ended_is_parked_when_the_cluster_stops(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            settings = {**SETTINGS, "conversations.park_after_ms": "3600000", "conversations.disk_folder": os.path.join(folder, "parked")}
            with Cluster(settings) as cluster:
                text, prompt, _ = ask(cluster, [SYSTEM, QUESTION])
                self.assertEqual(parked(cluster), 0)
            with Cluster(settings) as cluster:
                wait_for(lambda: json.loads(strata("conversations", "list", "--json", "--run-dir", cluster.run_dir).stdout)["snapshots"], 30,
                         "the disk tier offers its snapshots")
                self.assert_reused(cluster, [SYSTEM, QUESTION, {"role": "assistant", "content": text}, NEXT], prompt, "disk")

    def test_nothing_is_parked_without_a_budget(self):
        with Cluster({**SETTINGS, "conversations.ram_budget": "0"}) as cluster:
            self.assertTrue(ask(cluster, [QUESTION])[0])
            self.assertEqual(parked(cluster), 0)


if __name__ == "__main__":
    unittest.main()
