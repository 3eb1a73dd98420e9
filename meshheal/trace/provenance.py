"""What a run ran on, for its lock.json: versions and commit; no host names, no paths."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import meshheal

_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


def provenance() -> dict[str, Any]:
    """Versions of Python and of meshheal with all its dependencies that are installed, the git commit if any,
    the platform."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "packages": _packages(),
        "git": _git(Path(meshheal.__file__).parents[1]),
    }


def _packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    try:
        required = metadata.requires("meshheal") or []
    except metadata.PackageNotFoundError:
        return versions
    for requirement in ["meshheal", *required]:
        name = _REQUIREMENT.match(requirement)
        try:
            if name:
                versions[name.group()] = metadata.version(name.group())
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
    return dict(sorted(versions.items()))


def _git(root: Path) -> dict[str, Any] | None:
    """Commit of the checkout that the code is in. None elsewhere, and not the commit of whatever encloses a
    venv."""
    if not (root / ".git").exists():
        return None
    commit = _run_git(root, "rev-parse", "HEAD")
    if not commit:
        return None
    return {
        "commit": commit,
        "changed": bool(_run_git(root, "status", "--porcelain", "--untracked-files=no")),
    }


def _run_git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
