"""Conversations that come back: what was read before is not read again, and no answer shows it."""
import unittest

from support import SETTINGS, Cluster

SYSTEM = {"role": "system", "content": "You are a helpful assistant who answers in short sentences. " * 6}
# On this device prompts and answers take one path, so that a conversation read cold has the bits of one that went on.
ONE_PATH = SETTINGS.get("device.type", "host") == "host"


def user(content):
    return {"role": "user", "content": content}


def ask(cluster, messages, **fields):
    """(text, tokens of the prompt, those of them that were known)"""
    body = {"model": "default", "messages": messages, "temperature": 0, "max_tokens": 40, **fields}
    status, answer, _ = cluster.request("POST", "/v1/chat/completions", body)
    if status != 200:
        raise AssertionError(f"chat: {status} {answer}")
    usage = answer["usage"]
    return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


QUESTION = user("What is a violin?")
NEXT = user("And what is a cello?")
EDITED = user("Tell me about swans.")


class Conversations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Room for the conversations of one test, not for those of all.
        cls.cluster = Cluster({"experts.slots": "25%", "engine.sequences": "2"})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def tearDown(self):
        # Answers are right without the index, too; that it and the engine understand each other is said by nothing but the log.
        log = self.cluster.tail(1 << 20)
        self.assertNotRegex(log, r" warn +gateway index: (gpu-worker|cache-manager): (added|removed|begin)")

    def cold(self, messages):
        """What a cluster answers that has read nothing before."""
        with Cluster({"experts.slots": "25%"}) as cluster:
            text, _, cached = ask(cluster, messages)
        self.assertEqual(cached, 0)
        return text

    def assert_answered_as_if_cold(self, messages, text):
        if ONE_PATH:
            self.assertEqual(text, self.cold(messages))

    def test_the_next_turn_reads_only_what_is_new(self):
        system = {"role": "system", "content": "Next turns. " + SYSTEM["content"]}
        first, prompt, cached = ask(self.cluster, [system, QUESTION])
        self.assertEqual(cached, 0)
        longer = [system, QUESTION, {"role": "assistant", "content": first}, NEXT]
        text, whole, cached = ask(self.cluster, longer)
        # Of the answer all but its last token, which nobody has read yet.
        self.assertGreaterEqual(cached, prompt + 39)
        self.assertLess(cached, whole)
        self.assert_answered_as_if_cold(longer, text)

    def test_an_edited_message_is_read_again_and_nothing_before_it(self):
        system = {"role": "system", "content": "Edited. " + SYSTEM["content"]}
        first, prompt, _ = ask(self.cluster, [system, QUESTION])
        history = [system, QUESTION, {"role": "assistant", "content": first}]
        ask(self.cluster, history + [NEXT])
        text, whole, cached = ask(self.cluster, history + [EDITED])
        self.assertGreaterEqual(cached, prompt + 39, "up to the edited message")
        self.assertLess(whole - cached, 20)
        self.assert_answered_as_if_cold(history + [EDITED], text)

    def test_another_chat_with_the_same_system_prompt_reads_only_what_is_its_own(self):
        system = {"role": "system", "content": "A root. " + SYSTEM["content"]}
        first, _, _ = ask(self.cluster, [system, QUESTION])
        text, whole, cached = ask(self.cluster, [system, EDITED])
        self.assertGreater(cached, 60)
        self.assertLess(whole - cached, 20)
        self.assert_answered_as_if_cold([system, EDITED], text)
        # The first chat is still there.
        _, whole, cached = ask(self.cluster, [system, QUESTION, {"role": "assistant", "content": first}, NEXT])
        self.assertLess(whole - cached, 30)

    def test_an_answer_that_a_stop_string_ended_is_gone_on_with(self):
        system = {"role": "system", "content": "Stopped. " + SYSTEM["content"]}
        whole, _, _ = ask(self.cluster, [system, QUESTION], max_tokens=60)
        place = next(place for place in range(len(whole) * 2 // 3, len(whole)) if whole.find(whole[place:place + 8]) == place)
        body = {"messages": [system, QUESTION], "temperature": 0, "max_tokens": 60, "stop": whole[place:place + 8]}
        _, answer, _ = self.cluster.request("POST", "/v1/chat/completions", body)
        shown, usage = answer["choices"][0]["message"]["content"], answer["usage"]
        self.assertEqual(shown, whole[:place])
        history = [system, QUESTION, {"role": "assistant", "content": shown}, NEXT]
        text, _, cached = ask(self.cluster, history)
        # The engine was further than what was shown; states 16 tokens apart were kept.
        self.assertGreaterEqual(cached, usage["prompt_tokens"] + usage["completion_tokens"] - 16 - 8)
        self.assert_answered_as_if_cold(history, text)

    def test_an_answer_that_the_client_left_is_gone_on_with(self):
        system = {"role": "system", "content": "Left alone. " + SYSTEM["content"]}
        body = {"messages": [system, QUESTION], "max_tokens": 200}
        pieces = self.cluster.stream("", **body)
        said = "".join(next(pieces) for _ in range(5))
        pieces.close()
        text, whole, cached = ask(self.cluster, [system, QUESTION, {"role": "assistant", "content": said}, NEXT])
        self.assertGreater(cached, 70)
        self.assertLess(whole - cached, 40)
        self.assert_answered_as_if_cold([system, QUESTION, {"role": "assistant", "content": said}, NEXT], text)

    @unittest.skipUnless(ONE_PATH, "what is read again was generated before")
    def test_conversations_that_alternate_are_answered_as_alone(self):
        """Three of them in two places: some have to be read again."""
        def turns(cluster, topics):
            histories = {topic: [user(f"What is a {topic}?")] for topic in topics}
            for _ in range(3):
                for history in histories.values():
                    text, _, _ = ask(cluster, history, max_tokens=16)
                    history += [{"role": "assistant", "content": text}, user("Tell me more.")]
            return histories
        topics = ("violin", "swan", "river")
        together = turns(self.cluster, topics)
        for topic in topics:
            with Cluster({"experts.slots": "25%"}) as cluster:
                self.assertEqual(turns(cluster, [topic])[topic], together[topic])


if __name__ == "__main__":
    unittest.main()
