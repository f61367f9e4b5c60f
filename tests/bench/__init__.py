"""How fast the manager is, beside every peer and with every rule on: `python -m tests.bench` (see README.md here)."""
