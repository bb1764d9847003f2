"""The five systems, a package each; see the README in each folder. The core never imports from here: it reads the
registry in `wharfinger.system`."""
