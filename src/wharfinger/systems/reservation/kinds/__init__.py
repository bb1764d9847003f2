"""The kinds of this system: names, schemas, defaults and validation; `views` are what decisions read of them."""
