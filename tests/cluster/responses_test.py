"""Stored responses: what a client goes on from outlives the gateway, and what was read before is not read again."""
import json
import os
import stat
import unittest

from support import SETTINGS, Cluster, wait_for

QUESTION = "What is a violin?"
# On this device prompts and answers take one path, so that a conversation that comes back has the bits of one that went on.
ONE_PATH = SETTINGS.get("device.type", "host") == "host"


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster({"experts.slots": "25%", "engine.sequences": "2"})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def respond(self, content, **fields):
        body = {"model": "default", "input": content, "temperature": 0, "max_output_tokens": 40, **fields}
        status, answer, _ = self.cluster.request("POST", "/v1/responses", body)
        self.assertEqual(status, 200, answer)
        return answer

    def text(self, response):
        return response["output"][-1]["content"][0]["text"]

    def cached(self, response):
        return response["usage"]["input_tokens_details"]["cached_tokens"]

    def test_what_the_client_goes_on_from_is_not_read_again(self):
        system = "You are a helpful assistant who answers in short sentences. " * 4
        first = self.respond(QUESTION, instructions=system)
        usage = first["usage"]
        second = self.respond("And what is a cello?", instructions=system, previous_response_id=first["id"])
        # Of the answer all but its last token, which nobody has read yet.
        self.assertGreaterEqual(self.cached(second), usage["input_tokens"] + usage["output_tokens"] - 1)
        items = [{"role": "user", "content": QUESTION}, *first["output"], {"role": "user", "content": "And what is a cello?"}]
        whole = self.respond(items, instructions=system, store=False)
        self.assertEqual(whole["usage"]["input_tokens"], second["usage"]["input_tokens"], "another prompt than the stored one")
        if ONE_PATH:
            self.assertEqual(self.text(whole), self.text(second))

    def test_responses_outlive_a_killed_gateway(self):
        first = self.respond(QUESTION)
        # Killed as soon as the client knows: whoever hears the end of a stream may rely on it.
        lines = self.stream("Tell me about swans.", previous_response_id=first["id"])
        pid = self.cluster.kill("gateway")
        self.cluster.wait_restarted("gateway", pid)
        self.wait_ready()
        status, stored, _ = self.cluster.request("GET", f"/v1/responses/{lines['id']}")
        self.assertEqual(status, 200, stored)
        self.assertEqual(stored, lines)
        third = self.respond("And about geese?", previous_response_id=lines["id"])
        self.assertGreater(third["usage"]["input_tokens"], lines["usage"]["input_tokens"] + lines["usage"]["output_tokens"] - 2)
        mode = os.stat(os.path.join(self.cluster.run_dir, "responses.sqlite")).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)

    def stream(self, content, **fields):
        """The response that a stream ends with."""
        body = {"model": "default", "input": content, "temperature": 0, "max_output_tokens": 40, "stream": True, **fields}
        status, text, _ = self.cluster.request("POST", "/v1/responses", body)
        self.assertEqual(status, 200, text)
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        self.assertIn(events[-1]["type"], ("response.completed", "response.incomplete"))
        return events[-1]["response"]

    def wait_ready(self):
        def ready():
            try:
                return self.cluster.request("GET", "/ready", timeout=5)[0] == 200
            except OSError:
                return False
        wait_for(ready, 30, "ready again")


if __name__ == "__main__":
    unittest.main()
