"""Knowledge graphs: loading, checking, splitting, writing; adjacency, labels, statistics."""
