"""The environment that is measured, and the machine it is measured on.

Installed as a user would, never from the checkout: only then are the modules compiled once and for all.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

PACKAGES = ("clawmem_core", "clawmem_cli", "clawmem_migrate")
LIBRARIES = (
    "numpy", "h5py", "typer", "cryptography", "orjson", "PyStemmer", "simsimd", "hnswlib", "apsw", "sqlite-vec",
    "bm25s", "usearch",
)  # fmt: skip


def prepare(root: Path) -> None:
    """Make `.bench` if it is not there, and install this tree into it: a copy, with both extras and the peers."""
    target = root / ".bench"
    if not (target / "bin" / "pip").exists():
        print("making .bench …", file=sys.stderr, flush=True)
        venv.create(target, with_pip=True, symlinks=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)  # as set-up does: an old one's console scripts import re
    with tempfile.TemporaryDirectory() as folder:
        for name in PACKAGES:
            shutil.copytree(root / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            if (root / name).exists():
                shutil.copy(root / name, folder)
        peers = root / "scripts" / "bench-requirements.txt"
        subprocess.run([*pip, "--requirement", peers, folder], check=True)
        subprocess.run([*pip, "--force-reinstall", "--no-deps", folder], check=True)


def machine() -> dict[str, object]:
    """What a reader needs to judge the numbers; no host name, no path."""
    from importlib import metadata

    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "clawmem": project_version(Path(__file__).resolve().parents[2] / "pyproject.toml"),
        "libraries": versions,
        "load_before": load(),
    }


def load() -> float:
    """Processes that wanted to run in the last minute, on average: above the number of cores the numbers are noisy."""
    return round(os.getloadavg()[0], 1)


def processor(text: str | None = None) -> str:
    """Model of the processor, from /proc/cpuinfo where there is one."""
    if text is None:
        info = Path("/proc/cpuinfo")
        text = info.read_text() if info.exists() else ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    found = {key.strip(): value.strip() for key, value in fields.items()}
    name = found.get("model name", platform.processor() or platform.machine())
    model = found.get("model")
    return f"{name} (family {found['cpu family']}, model {model})" if model and "cpu family" in found else name


def project_version(pyproject: Path) -> str:
    """The version in a pyproject.toml."""
    return str(tomllib.loads(pyproject.read_text())["project"]["version"])
