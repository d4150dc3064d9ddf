"""What makes JSON from a schema, ours and other people's: how often it is valid, how fast, and whether it repeats.

    python -m benchmarks.schemas FILE...        # recordings with tools

Libraries that are not installed are passed over. The schemas are those of the tools in the files, and those of
``tests/mockserver/api/test_instances.py``. Each generator makes 20 values of each, and again; a value is valid where
jsonschema says so. Milliseconds are of CPU for one value; a schema's first value includes what the generator prepares.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from mockserver.api.instances import instance
from tests.mockserver.api.test_instances import SCHEMAS, tool_schemas_in

NUM_VALUES = 20
Make = Callable[[int], Any]
"""A value from a seed."""


def ours(schema: dict[str, Any]) -> Make:
    """``mockserver/api/instances.py``."""
    return lambda seed: instance(schema, random.Random(seed))


def jsf(schema: dict[str, Any]) -> Make:
    """Draws from the random module's own generator, so that is what has to be seeded."""
    jsf_class, faker_class = importlib.import_module("jsf").JSF, importlib.import_module("faker").Faker

    def make(seed: int) -> Any:
        random.seed(seed)
        faker_class.seed(seed)
        return jsf_class(schema).generate()

    return make


def faker_jsonschema(schema: dict[str, Any]) -> Make:
    """A provider for Faker; it needs js-regex, which it does not ask for."""
    fake = importlib.import_module("faker").Faker()
    fake.add_provider(importlib.import_module("faker_jsonschema.provider").JSONSchemaProvider)

    def make(seed: int) -> Any:
        fake.seed_instance(seed)
        return fake.from_jsonschema(schema)

    return make


def fences(schema: dict[str, Any]) -> Make:
    """Enumerates a few values of each schema instead of drawing them."""
    graph = importlib.import_module("fences").parse_json_schema(schema)

    def make(seed: int) -> Any:
        random.seed(seed)
        return graph.execute(next(one.path for one in graph.generate_paths() if one.is_valid))

    return make


def hypothesis_jsonschema(schema: dict[str, Any]) -> Make:
    """A strategy; a test of one example is the only way to draw from it with a seed."""
    hypothesis = importlib.import_module("hypothesis")
    strategy = importlib.import_module("hypothesis_jsonschema").from_schema(schema)
    once = hypothesis.settings(
        max_examples=1,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    def make(seed: int) -> Any:
        found: list[Any] = []

        def keep(value: Any) -> None:
            found.append(value)

        hypothesis.seed(seed)(once(hypothesis.given(strategy)(keep)))()
        return found[-1]

    return make


GENERATORS: dict[str, Callable[[dict[str, Any]], Make]] = {
    one.__name__: one for one in (ours, jsf, faker_jsonschema, fences, hypothesis_jsonschema)
}


def line(name: str, schemas: Sequence[dict[str, Any]]) -> str:
    """How one generator does with all schemas."""
    num_valid = num_failed = longest = 0
    cpu_s, slowest_s, repeats = 0.0, 0.0, True
    failures: dict[str, int] = {}
    for schema in schemas:
        validator = Draft202012Validator(schema)
        made: list[list[str]] = [[], []]
        for texts in made:
            make: Make | None = None
            for seed in range(NUM_VALUES):
                began = time.process_time()
                try:
                    make = make or GENERATORS[name](schema)
                    value = make(seed)
                except Exception as error:
                    num_failed += 1
                    failures[repr(error)[:80]] = failures.get(repr(error)[:80], 0) + 1
                    continue
                took_s = time.process_time() - began
                cpu_s, slowest_s = cpu_s + took_s, max(slowest_s, took_s)
                texts.append(json.dumps(value, default=str))
                longest = max(longest, len(texts[-1]))
                num_valid += validator.is_valid(value)
        repeats = repeats and made[0] == made[1]
    num_all = 2 * NUM_VALUES * len(schemas)
    most = max(failures, key=lambda text: failures[text], default="")
    return (
        f"{name:<22} {num_valid / num_all:7.1%} valid, {num_failed / num_all:6.1%} failed, "
        f"{cpu_s / max(1, num_all - num_failed) * 1000:7.3f} ms, at most {slowest_s * 1000:6.1f} ms, "
        f"{longest:>7} characters at most, {'repeats' if repeats else 'does not repeat'}{'; ' if most else ''}{most}"
    )


def main() -> None:
    """Print a line for each generator and set of schemas."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    warnings.simplefilter("ignore")
    tools = [{"type": "object", **one} for one in tool_schemas_in(parser.parse_args().files)]
    for label, schemas in (("schemas of tools", tools), ("schemas of our tests", SCHEMAS)):
        print(f"{len(schemas)} {label}")
        for name in GENERATORS:
            try:
                importlib.import_module("json" if name == "ours" else name)
            except ImportError:
                continue
            print("  " + line(name, schemas), flush=True)


if __name__ == "__main__":
    main()
