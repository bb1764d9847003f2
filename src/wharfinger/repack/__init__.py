"""Moves pods so that nodes become free or waiting pods find room; see README.md."""
