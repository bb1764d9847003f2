"""The live scheduler: event feed, queue, binder and metrics around the engine, as asyncio tasks over the client."""
