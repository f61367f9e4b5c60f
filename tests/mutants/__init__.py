"""The mutant zoo: realistic faults, one line each, and proof that the judge bites every one of them."""
