"""The house plan of docs/development.md, generated from the import contracts: `python -m tests.house.plan`."""

import tomllib

from tests.house.tree import ROOT, modules

PAGE = ROOT / "docs" / "development.md"
_BEGIN, _END = "<!-- house plan: python -m tests.house.plan -->", "<!-- end of the house plan -->"


def plan() -> str:
    """Return the rows of the core from top to bottom, each with the purpose of its packages."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = next(contract["layers"] for contract in config["contracts"] if contract["type"] == "layers")
    lines = ["| row | package | holds |", "|---|---|---|"]
    for number, row in enumerate(rows, 1):
        for name in row.split(" | "):
            lines.append(f"| {number} | `{name}` | {_purpose(f'taskmq.{name}')} |")
    return "\n".join(lines)


def _purpose(name: str) -> str:
    (module,) = [module for module in modules() if module.name == name]
    return module.source.removeprefix('"""').partition("\n\n")[0].partition('"""')[0].replace("\n", " ").strip()


def read_plan() -> str:
    """Return the plan on the page."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0].strip()


def write() -> None:
    """Write the plan into the page."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}\n\n{plan()}\n\n{_END}{rest.partition(_END)[2]}")


if __name__ == "__main__":
    write()
