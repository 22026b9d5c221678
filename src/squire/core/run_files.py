"""The names of the files in a run folder."""

from pathlib import Path

from squire.core.tensors import CHECKPOINT, SUFFIX, read_checksum
from squire.errors import SettingError

GRAPH = "graph.graph"  # the whole graph, so that a run needs nothing outside its folder
RECIPE = "recipe.json"  # every setting
RULES = "rules.safetensors"  # the rules that the paths follow
RULES_TEXT = "rules.tsv"  # the same in runs made before version 0.2
TRIES = "tries.safetensors"
LAST, BEST = "last", "best"  # checkpoints: the latest state, and the best by validation
EDGES = "edges"  # a checkpoint: edge embeddings, which the model starts from and the fusion weighs
METRICS = "metrics.jsonl"  # one line for each step and each validation
FUSION = "fusion"  # a checkpoint: the ranker over all evidence
ANNOTATION = "annotation"  # a folder: paths to be judged and the judgements, unless another folder is given
REVIEW = "review"  # a folder: decisions about predicted and doubtful facts
CHANGES = "changes"  # a folder: facts that were added or removed after training
INDEXES = "indexes"  # a folder: what is worked out of the graph, and can be made again
EXAMPLES = "examples.json"  # questions that the model answers well
LOCK = "lock"  # held while a process trains in the folder
START = "start"  # in the folder of an iteration: the checkpoint at the end of the previous iteration
FINGERPRINT_DIGITS = 12


def check_run(folder: Path) -> None:
    """Raise SettingError if the folder holds no run."""
    if not (folder / GRAPH).exists() or not (folder / RECIPE).exists():
        raise SettingError(f"{folder}: no run here. Run `squire train GRAPH --out {folder}` first.")


def iteration_folder(run: Path, iteration: int) -> Path:
    """The folder for the paths of iteration k, from the second on (Algorithm 1)."""
    return run / f"iteration-{iteration}"


def tries_file(run: Path, iteration: int) -> Path:
    """The prefix trees that an iteration is trained on."""
    return (run if iteration == 1 else iteration_folder(run, iteration)) / TRIES


def epoch_tries(run: Path, epoch: int) -> Path:
    """The prefix trees of an epoch, from the second on, if each has new paths."""
    return run / f"tries-of-epoch-{epoch}.safetensors"


def evaluation_file(run: Path, ranking: str, split: str, **changes: object) -> Path:
    """The results of `squire evaluate`. Each combination of `changes` to the default settings has its own file."""
    parts = [f"-{name}-{value}".lower() for name, value in sorted(changes.items())]
    return run / f"evaluation-{ranking}-{split}{''.join(parts)}.json"


def evaluation_files(run: Path) -> list[Path]:
    """All evaluation files of a run, those of the default settings before the others."""
    return sorted(run.glob("evaluation-*.json"), key=lambda file: file.stem)


def fingerprint(run: Path) -> str:
    """The first digits of the checksum of a run's model; reads only the file's header."""
    if found := fingerprints(run)["model"]:
        return found
    raise SettingError(f"{run}: no model here. Run `squire train GRAPH --out {run}` first.")


def fingerprints(run: Path) -> dict[str, str]:
    """The same for the model and for the fusion; empty for what the run does not have."""
    found = {}
    for kind, names in (("model", (BEST, LAST)), ("fusion", (FUSION,))):
        files = [file for name in names if (file := run / f"{name}{SUFFIX}").exists()]
        found[kind] = read_checksum(files[0], CHECKPOINT)[:FINGERPRINT_DIGITS] if files else ""
    return found
