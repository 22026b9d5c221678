"""Named benchmark graphs: which there are, where they are, and how to download them."""
