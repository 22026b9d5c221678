"""What is what in a run folder."""

from pathlib import Path

GRAPH = "graph.graph"  # all of it, so that a run needs nothing but its folder
RECIPE = "recipe.json"  # with every setting that was given
RULES = "rules.tsv"
TRIES = "tries.safetensors"
LAST, BEST = "last", "best"  # checkpoints, by their names: the last state, and the best by valid
METRICS = "metrics.jsonl"  # one line a step, and one a validation
TENSORBOARD = "tensorboard"  # the same for TensorBoard, where it is installed
FUSION = "fusion"  # a checkpoint too: the ranker over all evidence
ANNOTATION = "annotation"  # a folder: paths to judge, and judgements of them, if no other place was named
LOCK = "lock"  # held while a process trains in the folder
START = "start"  # in the folder of an iteration: the checkpoint that ended the iteration before


def iteration_folder(run: Path, iteration: int) -> Path:
    """Where the paths of iteration k are gathered, from the second on (Algorithm 1)."""
    return run / f"iteration-{iteration}"


def tries_file(run: Path, iteration: int) -> Path:
    """The prefix trees that an iteration is trained on."""
    return (run if iteration == 1 else iteration_folder(run, iteration)) / TRIES


def evaluation_file(run: Path, ranking: str, split: str, *, sampled: bool) -> Path:
    """What `squire evaluate` found; of a sample apart, so that it never takes the place of the whole."""
    return run / f"evaluation-{ranking}-{split}{'-sample' if sampled else ''}.json"


def evaluation_files(run: Path) -> list[Path]:
    """All that are there, in order."""
    return sorted(run.glob("evaluation-*.json"))
