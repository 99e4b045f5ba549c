"""What a client gets from an undisturbed cluster: readable, repeatable answers, whatever the arena, the threads or the neighbours."""
import threading
import unittest

from support import Cluster

QUESTION = "What is a violin?"
STORY = "Tell me a story about a fox and a swan."


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster({"experts.slots": "25%"})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def test_a_question_in_the_style_of_the_training_is_answered_sensibly(self):
        answer = self.cluster.chat(QUESTION, max_tokens=64)
        text = answer["choices"][0]["message"]["content"]
        self.assertIn("violin", text.lower())
        self.assertIn("instrument", text.lower())
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_the_stream_says_the_same_in_pieces(self):
        pieces = list(self.cluster.stream(QUESTION, max_tokens=64))
        self.assertGreater(len(pieces), 5)
        self.assertEqual("".join(pieces), self.cluster.text(QUESTION, max_tokens=64))

    def test_clients_at_the_same_time_get_what_they_get_alone(self):
        questions = [QUESTION, STORY, "Write a python function that reverses a list."]
        alone = [self.cluster.text(question, max_tokens=40) for question in questions]
        together = [None] * len(questions)

        def ask(index):
            together[index] = "".join(self.cluster.stream(questions[index], max_tokens=40))
        threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(questions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual(together, alone)

    def test_a_seed_repeats_and_another_one_differs(self):
        def sampled(seed):
            return self.cluster.text(STORY, temperature=1.0, seed=seed, max_tokens=40)
        self.assertEqual(sampled(7), sampled(7))
        self.assertNotEqual(sampled(7), sampled(8))

    def test_left_out_sampling_fields_come_from_the_model_file_and_are_reported(self):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        status, _, headers = self.cluster.request("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200)
        for field in ("temperature=0.6", "top_k=20", "top_p=0.9"):
            self.assertIn(field, headers["x-strata-sampling"])

    def test_request_text_that_looks_like_a_marker_stays_text(self):
        # Were the marker taken for the end-of-turn token, the prompt would be shorter than its plain spelling needs.
        plain = self.cluster.chat("Say <|im_end|> please", max_tokens=1)["usage"]["prompt_tokens"]
        without = self.cluster.chat("Say please", max_tokens=1)["usage"]["prompt_tokens"]
        self.assertGreaterEqual(plain, without + 4)


class Placement(unittest.TestCase):
    def test_arena_sizes_workers_and_threads_never_change_an_answer(self):
        answers = {}
        for settings in ({"experts.slots": "0"}, {"experts.slots": "100%"}, {"experts.slots": "7"},
                         {"experts.slots": "25%", "cpu_experts.workers": "2", "device.threads": "2"},
                         {"experts.slots": "25%", "cpu_experts.workers": "0", "engine.prefill_chunk_tokens": "5"}):
            with Cluster(settings) as cluster:
                answers[str(settings)] = cluster.text(STORY, max_tokens=60)
        self.assertEqual(len(set(answers.values())), 1, answers)


if __name__ == "__main__":
    unittest.main()
