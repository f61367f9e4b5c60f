"""What must hold: the words, the rules, the invariants, the scenarios and the wire formats."""
