"""Renders chat templates with jinja2 as Hugging Face does; what gateway/chat_template is judged against.

Reads JSON lines {"template": ..., "variables": {...}} from standard input and writes, for each, {"text": ...} or
{"error": ...}. Exits with 77 and a sentence on standard output when jinja2 is not installed.
"""

import datetime
import json
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError as missing:
    print(f"no oracle: {missing}")
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """{% generation %} only groups."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(pattern):
    return datetime.datetime.now().strftime(pattern)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def render(environment, template, variables):
    try:
        return {"text": environment.from_string(template).render(**variables)}
    except Exception as error:  # noqa: BLE001 - whatever a template does to jinja2 is an answer
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    environment = make_environment()
    for line in sys.stdin:
        case = json.loads(line)
        answer = render(environment, case["template"], case["variables"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
