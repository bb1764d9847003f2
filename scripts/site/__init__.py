"""Builds the documentation site: `python -m scripts.site`.

Zensical, from an environment of its own (`.venv-docs`), turns `docs/` into `build/site`. The scripts that its theme would
load from elsewhere are put next to it, so that the site works without a network and without a server. `links` then checks
every link and anchor of what was built.
"""
