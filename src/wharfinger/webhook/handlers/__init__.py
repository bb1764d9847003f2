"""The handlers, a file for each concern, every file with a function `handlers(context)` that gives a list of them."""
