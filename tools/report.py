"""What a check has measured, as docs/reliability.md shows it: a small file per check, with the day and the commit."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]


def commit() -> str:
    """The commit that is checked out, with a plus if files differ from it; what is written here does not count."""
    git = ["git", "-C", str(ROOT)]
    number = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    if number.returncode:
        return "unknown"
    others = [":/", ":(exclude,top)docs/reliability*"]
    clean = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *others], check=False).returncode == 0
    return number.stdout.strip() + ("" if clean else "+")


def write(path: Path, command: str, figures: dict[str, Any], **more: Any) -> None:
    """Write a check's report: when and what was measured, how to repeat it, and what came out."""
    report = {
        "measured": datetime.date.today().isoformat(),
        "commit": commit(),
        "command": command,
        "figures": figures,
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
