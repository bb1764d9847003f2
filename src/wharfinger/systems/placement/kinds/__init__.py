"""The API kinds of this system: names, schemas, defaults and validation. `views` has the parsed form that decisions
read."""
