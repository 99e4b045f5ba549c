"""Answers that are held to a form, by the real model: JSON and nothing else, calls that fit their tools, thinking that ends in time. Short;
tests/load/schema_validity.py asks a thousand times."""
import json
import os
import sys
import unittest

from support import Cluster, ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from json_schema import Validator, strict_loads  # noqa: E402

SCHEMA = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 20}, "pages": {"type": "integer", "minimum": 1, "maximum": 999},
                                           "tags": {"type": "array", "items": {"enum": ["old", "new", "red"]}, "maxItems": 3}},
          "required": ["title", "pages", "tags"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "book", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "London", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"], "additionalProperties": False}}}
WILD = {"temperature": 1.5, "top_p": 1, "top_k": 0, "min_p": 0}


class Constrained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster({"experts.slots": "25%"})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def fits(self, text):
        self.assertEqual(text, text.strip())
        self.assertEqual(Validator(SCHEMA).faults(strict_loads(text)), [], text)

    def refused(self, path="/v1/chat/completions", **fields):
        status, answer, _ = self.cluster.request("POST", path, {"messages": [{"role": "user", "content": "Hi"}], **fields})
        self.assertEqual(status, 400, answer)
        return answer["error"]

    def test_json_of_a_schema_whole_and_streamed_alike(self):
        for seed in range(4):
            fields = {**WILD, "seed": seed, "max_tokens": 300, "response_format": FORMAT, "reasoning_effort": "none"}
            answer = self.cluster.chat("Invent a book.", **fields)
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            text = answer["choices"][0]["message"]["content"]
            self.fits(text)
            self.assertEqual("".join(self.cluster.stream("Invent a book.", **fields)), text)

    def test_behind_thinking_that_ends_in_time(self):
        for budget in (0, 1, 12):
            answer = self.cluster.chat("Invent a book.", **WILD, seed=budget, max_tokens=300, response_format=FORMAT, reasoning_effort="high",
                                       reasoning_budget_tokens=budget)
            self.fits(answer["choices"][0]["message"]["content"])
            # The token that ends the thinking counts as one of it.
            self.assertLessEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], budget + 1)

    def test_a_fifth_of_the_cap_is_the_answers(self):
        answer = self.cluster.chat("Why is the sky blue?", **WILD, seed=3, max_tokens=20, reasoning_effort="high")
        self.assertLessEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 17)

    def test_any_object_and_a_grammar(self):
        text = self.cluster.text("Say something.", max_tokens=200, response_format={"type": "json_object"}, reasoning_effort="none")
        self.assertTrue(text.startswith("{"), text)
        for path, fields in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Yes?"}]}), ("/v1/completions", {"prompt": "Yes?"})):
            body = {**fields, **WILD, "grammar": "root ::= (\"yes\" | \"no\") \"!\"", "max_tokens": 20}
            status, answer, _ = self.cluster.request("POST", path, body)
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            self.assertIn(choice.get("text") or choice["message"]["content"], ("yes!", "no!"))
            self.assertEqual(choice["finish_reason"], "stop")

    def test_calls_fit_their_tools_whoever_begins_them(self):
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            for seed in range(3):
                answer = self.cluster.chat("Is it warm?", **WILD, seed=seed, max_tokens=200, tools=[TOOL], tool_choice=choice,
                                           parallel_tool_calls=False)
                message = answer["choices"][0]["message"]
                self.assertIsNone(message["content"])
                self.assertEqual(len(message["tool_calls"]), 1)
                arguments = strict_loads(message["tool_calls"][0]["function"]["arguments"])
                self.assertEqual(Validator(TOOL["function"]["parameters"]).faults(arguments), [])

    def test_with_a_form_and_tools_it_is_one_of_both(self):
        for seed in range(4):
            answer = self.cluster.chat("Is it warm?", **WILD, seed=seed, max_tokens=300, tools=[TOOL], response_format=FORMAT, reasoning_effort="none")
            choice = answer["choices"][0]
            if choice["finish_reason"] == "stop":
                self.fits(choice["message"]["content"])
            else:
                self.assertEqual(choice["finish_reason"], "tool_calls")
                self.assertIsNone(choice["message"]["content"])

    def test_what_cannot_be_held_to_is_refused(self):
        error = self.refused(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {
            "properties": {"age": {"type": "integer", "multipleOf": 5}}}}})
        self.assertEqual(error["param"], "response_format")
        self.assertIn("#/properties/age", error["message"])
        self.assertIn("multipleOf", error["message"])
        self.assertEqual(self.refused(grammar="root ::= root \"a\"")["param"], "grammar")
        self.assertEqual(self.refused(grammar="root ::= \"a\"", tools=[TOOL])["param"], "grammar")

    def test_an_answer_among_several_is_the_one_that_its_seed_gives_alone(self):
        fields = {"temperature": 1, "max_tokens": 12, "reasoning_effort": "none"}
        several = self.cluster.chat("Tell me a story.", **fields, n=3, seed=10)
        alone = [self.cluster.chat("Tell me a story.", **fields, seed=10 + index) for index in range(3)]
        self.assertEqual([choice["index"] for choice in several["choices"]], [0, 1, 2])
        self.assertEqual([choice["message"] for choice in several["choices"]], [one["choices"][0]["message"] for one in alone])
        self.assertEqual(several["usage"]["prompt_tokens"], alone[0]["usage"]["prompt_tokens"])
        self.assertEqual(several["usage"]["completion_tokens"], sum(one["usage"]["completion_tokens"] for one in alone))

    def test_best_of_gives_the_likeliest(self):
        body = {"prompt": "Once upon a time", "temperature": 1, "max_tokens": 8, "seed": 20, "logprobs": 0}

        def mean(choice):
            return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])
        _, all_of_them, _ = self.cluster.request("POST", "/v1/completions", {**body, "n": 3})
        _, best, _ = self.cluster.request("POST", "/v1/completions", {**body, "n": 1, "best_of": 3})
        self.assertEqual(len(best["choices"]), 1)
        self.assertEqual(best["choices"][0]["text"], max(all_of_them["choices"], key=mean)["text"])

    def test_a_schema_as_json_text_is_in_no_log(self):
        self.cluster.chat("Say something.", max_tokens=60, response_format={"type": "json_schema", "json_schema": {
            "name": "n", "schema": {"enum": ["needle-in-the-schema"]}}}, reasoning_effort="none")
        self.assertNotIn("needle-in-the-schema", json.dumps(self.cluster.tail(100_000)))


if __name__ == "__main__":
    unittest.main()
