"""What is what in a run folder."""

GRAPH = "graph.graph"  # all of it, so that a run needs nothing but its folder
RECIPE = "recipe.json"  # with every setting that was given
RULES = "rules.tsv"
TRIES = "tries.safetensors"
LAST, BEST = "last", "best"  # checkpoints, by their names: the last state, and the best by valid
METRICS = "metrics.jsonl"  # one line a step, and one a validation
TENSORBOARD = "tensorboard"  # the same for TensorBoard, where it is installed
FUSION = "fusion"  # a checkpoint too: the ranker over all evidence
LOCK = "lock"  # held while a process trains in the folder
