"""Evidence paths of facts, and prefix trees of them."""
