"""Whether answers that are held to a schema fit it: 20 schemas, 50 answers each, sampled as wildly as the API allows, a quarter each
streamed or whole, with thinking or without.

    tests/load/schema_validity.py [--answers 50] [--clients 4] [--set PATH=VALUE] [--json]

An answer is valid if it ended by itself (one that the cap cut is not), is JSON and nothing else, and fits its schema by
tests/support/json_schema.py and by python3-jsonschema, if that is there. Prints the faults; exit status 1 if there are any. Figures
belong into docs/grammar.md.
"""
import argparse
import concurrent.futures
import json
import os
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "cluster"), os.path.join(TESTS, "support")]
from json_schema import Validator, strict_loads  # noqa: E402
from support import Cluster  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

TEXT = {"type": "string", "maxLength": 24}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def record(properties, optional=(), **more):
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


# Every string and list has an end, so that answers have one, too, whatever the model would like.
SCHEMAS = {
    "book": record({"title": TEXT, "author": TEXT, "year": {"type": "integer", "minimum": 1450, "maximum": 2030}}),
    "optional members": record({"a": DIGIT, "b": TEXT, "c": {"type": "boolean"}, "d": {"type": "null"}}, optional=("a", "b", "d")),
    "nothing required": record({"x": TEXT, "y": DIGIT, "z": TEXT}, optional=("x", "y", "z")),
    "enum": record({"city": {"enum": ["Paris", "London", "Rome", "Zürich"]}, "size": {"enum": [1, 2.5, None, True, "big"]}}),
    "const": record({"kind": {"const": "fox"}, "note": {"type": "string", "minLength": 5, "maxLength": 30}}),
    "list of strings": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 5},
    "list of numbers": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 6},
    "tuple": {"type": "array", "prefixItems": [TEXT, DIGIT, {"type": "boolean"}], "items": False, "minItems": 3},
    "list of records": {"type": "array", "items": record({"name": TEXT, "age": {"type": "integer", "minimum": 0, "maximum": 120}}),
                        "minItems": 1, "maxItems": 3},
    "nested": record({"outer": record({"inner": record({"deep": TEXT, "more": {"type": "array", "items": DIGIT, "maxItems": 4}})})}),
    "alternatives": {"anyOf": [record({"cat": TEXT}), record({"dog": DIGIT}), {"type": "array", "items": DIGIT, "maxItems": 3}]},
    "nullable": record({"name": {"type": ["string", "null"], "maxLength": 16}, "count": {"type": ["integer", "null"], "minimum": -5, "maximum": 5}}),
    "references": {**record({"from": {"$ref": "#/$defs/place"}, "to": {"$ref": "#/$defs/place"}}),
                   "$defs": {"place": record({"name": TEXT, "floor": {"type": "integer", "minimum": -3, "maximum": 200}})}},
    "tree": {"$ref": "#/$defs/leaf", "$defs": {
        "leaf": record({"value": DIGIT, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/twig"}]}}),
        "twig": record({"value": DIGIT, "next": {"anyOf": [{"type": "null"}, record({"value": DIGIT})]}})}},
    "patterns": record({"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}, "hex": {"type": "string", "pattern": "^(0x)?[0-9a-f]{1,8}$"}}),
    "formats": record({"day": {"type": "string", "format": "date"}, "id": {"type": "string", "format": "uuid"},
                       "at": {"type": "string", "format": "date-time"}, "host": {"type": "string", "format": "ipv4"}}),
    "ranges": record({"small": {"type": "integer", "minimum": -12, "maximum": 7}, "large": {"type": "integer", "minimum": 1000, "maximum": 98765},
                      "part": {"type": "number", "minimum": 0, "maximum": 1}}),
    "maybe empty records": {"type": "array", "minItems": 1, "maxItems": 3, "items": record({"id": DIGIT, "tag": TEXT}, optional=("id", "tag"))},
    "all of": {"allOf": [record({"a": TEXT, "b": DIGIT}), {"required": ["a", "b"]}]},
    "escapes": record({"\"quoted\"": {"type": "boolean"}, "back\\slash": DIGIT, "größe": {"type": "string", "minLength": 1, "maxLength": 12}}),
}
MAX_TOKENS = 700
THINKING_TOKENS = 24
# Nothing is cut away from what the model finds likely.
SAMPLING = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}


def body_of(name, number):
    thinking = number % 4 >= 2
    return {"model": "default", "messages": [{"role": "user", "content": f"Make a JSON value for me: {name}."}], **SAMPLING, "seed": number,
            "max_tokens": MAX_TOKENS, "stream": number % 2 == 1, "reasoning_effort": "low" if thinking else "none",
            "reasoning_budget_tokens": THINKING_TOKENS, "stream_options": {"include_usage": True} if number % 2 == 1 else None,
            "response_format": {"type": "json_schema", "json_schema": {"name": "value", "strict": True, "schema": SCHEMAS[name]}}}


def joined(stream):
    """A stream as the answer that it would have been as a whole."""
    message, finish, usage = {"content": "", "reasoning_content": ""}, None, None
    for line in stream.splitlines():
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise AssertionError(f"the stream failed: {chunk}")
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            for part in message:
                message[part] += choice["delta"].get(part) or ""
            finish = choice["finish_reason"] or finish
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def fault_of(name, answer, thinking):
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if choice["finish_reason"] != "stop":
        return f"ended with {choice['finish_reason']}"
    if thinking != bool(answer["usage"]["completion_tokens_details"]["reasoning_tokens"]):
        return "thought although it was off" if not thinking else "did not think"
    if text != text.strip():
        return "white space around the answer"
    try:
        value = strict_loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    faults = Validator(SCHEMAS[name]).faults(value)
    if jsonschema and not faults:
        faults = [error.message for error in jsonschema.Draft202012Validator(SCHEMAS[name]).iter_errors(value)]
    return faults[0] if faults else None


def generate(cluster, name, number):
    body = body_of(name, number)
    begun = time.monotonic()
    status, answer, _ = cluster.request("POST", "/v1/chat/completions", body, timeout=600)
    if status != 200:
        raise AssertionError(f"{name}: {status} {answer}")
    if body["stream"]:
        answer = joined(answer)
    return {"schema": name, "number": number, "fault": fault_of(name, answer, body["reasoning_effort"] != "none"),
            "text": answer["choices"][0]["message"]["content"], "tokens": answer["usage"]["completion_tokens"],
            "seconds": time.monotonic() - begun}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=50, help="to each schema")
    parser.add_argument("--clients", type=int, default=4, help="at the same time")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="settings of the cluster")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    tasks = [(name, number) for number in range(arguments.answers) for name in SCHEMAS]
    with Cluster(settings) as cluster, concurrent.futures.ThreadPoolExecutor(arguments.clients) as pool:
        begun = time.monotonic()
        answers = []
        for future in concurrent.futures.as_completed([pool.submit(generate, cluster, *task) for task in tasks]):
            answers.append(future.result())
            if answers[-1]["fault"]:
                print(f"{answers[-1]['schema']} #{answers[-1]['number']}: {answers[-1]['fault']}: {answers[-1]['text']!r}", flush=True)
            if len(answers) % 100 == 0:
                print(f"{len(answers)} of {len(tasks)}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        seconds = time.monotonic() - begun
    valid = sum(not answer["fault"] for answer in answers)
    tokens = sum(answer["tokens"] for answer in answers)
    distinct = len({(answer["schema"], answer["text"]) for answer in answers})
    figures = {"valid": valid, "total": len(answers), "distinct": distinct, "tokens": tokens, "seconds": round(seconds, 1),
               "tokens_per_second": round(tokens / seconds, 1), "second_validator": jsonschema is not None}
    print(json.dumps(figures) if arguments.json else
          f"{valid} of {len(answers)} valid ({distinct} different ones), {tokens} tokens in {seconds:.0f} s: {tokens / seconds:.1f} tok/s"
          f"{'' if jsonschema else '; without python3-jsonschema'}")
    sys.exit(0 if valid == len(answers) else 1)


if __name__ == "__main__":
    main()
