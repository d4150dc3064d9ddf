"""How numbers are written."""

from __future__ import annotations

import pytest

from reports.table import format_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0.0, "0"),
        (3.0, "3"),
        (0.00812, "0.00812"),
        (0.0000812, "8.1e-05"),
        (0.4479, "0.448"),
        (9.999, "10.00"),
        (45.04, "45.0"),
        (173.2155, "173.2"),
        (2999.74, "3,000"),
        (123456, "123,456"),
        (139_914_416, "139.9 M"),
        (2_500_000_000, "2.50 G"),
        (-12.34, "-12.3"),
    ],
)
def test_a_value_has_three_or_four_digits_that_mean_something(value: float | None, text: str) -> None:
    assert format_value(value) == text
