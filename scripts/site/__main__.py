"""`python -m scripts.site`: builds the site with Zensical and checks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from scripts.site.links import broken_links
from scripts.site.vendored import SiteError, add_scripts

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"


def main() -> int:
    shutil.rmtree(SITE, ignore_errors=True)
    built = subprocess.run([ROOT / ".venv-docs/bin/zensical", "build", "--clean", "--strict"], cwd=ROOT)
    if built.returncode:
        return built.returncode
    try:
        add_scripts(SITE)
    except SiteError as error:
        print(f"The site was not finished: {error}", file=sys.stderr)
        return 1
    faults = broken_links(SITE)
    if faults:
        print("Links that lead nowhere:", *faults, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE.relative_to(ROOT)}; every link leads somewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
