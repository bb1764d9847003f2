"""Record and replay: what a cluster did, and what it would have done under another configuration."""
