"""From a question in labels to answers with evidence; drawing and attention."""
