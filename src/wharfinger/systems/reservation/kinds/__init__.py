"""The kinds of this system: names, schemas, defaults and validation. `views` holds the typed views that decisions read."""
