"""What `optimize --scan ID:CLASS` says of all configurations of a class together."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.cli.modules.optimize_class import served
from kernel_assistant.records.scan import Sample
from kernel_assistant.session.scanning.class_tasks import as_document
from tests.common import results
from tests.session.test_program_gain import configurations, gained, scanned

FAST = results.result(best=results.best(speedup_vs_eager=2.0))
NONE = results.result()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((FAST, FAST), "kernels for 2 of 2 configurations serve 20 of 26 calls (77%); the original runs the others"),
        ((NONE, FAST), "kernels for 1 of 2 configurations serve 8 of 26 calls (31%); the original runs the others"),
        ((None, NONE), "kernels for 0 of 2 configurations serve 0 of 26 calls (0%); the original runs the others"),
    ],
)
def test_the_share_of_calls_that_is_served(found, words) -> None:
    norm = scanned("Norm", 4.0, calls=26, main_seconds=4.0, main_calls=12, more=configurations((2.0, 8)))
    assert served(gained(norm, *found)) == words
    all_calls = msgspec.structs.replace(norm, calls=20)
    assert served(gained(all_calls, FAST, FAST)) == "kernels for 2 of 2 configurations serve 20 of 20 calls (100%)"
    old = msgspec.structs.replace(norm, main_calls=0, more=configurations((2.0, 0)))
    assert served(gained(old, *found)) == words.partition(" serve")[0]


def test_a_configuration_as_data() -> None:
    samples = (Sample(number=0, text="(f32[8])", exact=True, calls=12),)
    norm = scanned("Norm", 4.0, calls=12, main_seconds=4.0, main_calls=12, samples=samples)
    (part,) = gained(norm, FAST).parts
    found = as_document(part)
    assert (found["number"], found["calls"], found["served_calls"], found["inputs"]) == (1, 12, 12, ["(f32[8])"])
    assert (found["outcome"], found["applicable"], found["speedup_vs_eager"]) == ("improved", True, 2.0)
    (part,) = gained(norm, None).parts
    assert (as_document(part)["outcome"], as_document(part)["served_calls"]) == ("failed", 0)
