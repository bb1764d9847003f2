"""`python -m scripts.reference`: writes the reference pages; with `--man FOLDER`, the man pages."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from scripts.reference.commands import read_command
from scripts.reference.man import man_pages
from scripts.reference.pages import reference_pages, write

import wharfinger


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.reference", description=__doc__)
    parser.add_argument("--man", metavar="FOLDER", type=Path, help="write the man pages into this folder instead")
    arguments = parser.parse_args()
    if arguments.man is None:
        changed = [str(path.relative_to(Path.cwd())) for path in write(reference_pages())]
        print("written: " + ", ".join(changed) if changed else "the reference pages are up to date")
        return
    # The date comes from the environment in a release, so that the same sources give the same files.
    now = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    arguments.man.mkdir(parents=True, exist_ok=True)
    pages = man_pages(read_command(), wharfinger.__version__, time.strftime("%Y-%m-%d", now))
    for name, text in pages.items():
        (arguments.man / name).write_text(text, encoding="utf-8")
    print(f"{len(pages)} man pages in {arguments.man}")


if __name__ == "__main__":
    main()
