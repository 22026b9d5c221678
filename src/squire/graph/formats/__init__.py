"""The file formats that a graph is read from."""
