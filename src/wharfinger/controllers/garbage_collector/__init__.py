"""The garbage collector: deletes objects whose owners are gone. `graph` is the ownership graph, `controller` does the I/O."""
