"""The roles of docs/security.md, generated from the code: `python -m tests.docs.security_page`."""

from taskmq.model.identity import RULES
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "security.md"
_BEGIN, _END = "<!-- roles: python -m tests.docs.security_page -->", "<!-- end of roles -->"


def table() -> str:
    """Return each permission with its scope, its role, and its description."""
    lines = ["| permission, and scope of tokens | on | role | lets one |", "|---|---|---|---|"]
    for permission, rule in RULES.items():
        lines.append(f"| `{permission.value}` | {rule.level.value} | {rule.role or 'none'} | {rule.about} |")
    return "\n".join(lines)


def read_table() -> str:
    """Return the table on the page."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0].strip()


def write() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}\n\n{table()}\n\n{_END}{rest.partition(_END)[2]}")


if __name__ == "__main__":
    write()
