"""What `tally` was as a prompt, as code: same name, same input, same answer."""

import csv
from decimal import Decimal
from pathlib import Path

LIMIT = 150
REPORTS = Path(__file__).parent / "reports"


def tally(report: str) -> dict:
    """Adds up an expense report and names the items over the limit.

    Args:
        report: file name of a report
    """
    with (REPORTS / Path(report).name).open(newline="") as file:
        items = [(row["what"], Decimal(row["amount"])) for row in csv.DictReader(file)]
    return {
        "total": float(sum(amount for _, amount in items)),
        "over_limit": [what for what, amount in items if amount > LIMIT],
    }


TOOLS = [tally]
