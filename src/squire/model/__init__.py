"""The transformer: recipe, vocabulary, batches, loss, frequency prior, decoder."""
