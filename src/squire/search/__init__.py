"""From a query to paths: beam search, constraints, known paths, grades of evidence."""
