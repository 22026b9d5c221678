"""Rules learned by AnyBURL and applied by PyClause, which is installed from its repository.

It is in no package index; PyPI's `clause` is another project. Entities and relations are written as e12 and r3:
names could be mistaken for the variables of a rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.relations import is_inverse
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_scores
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.graph.adjacency import Ids
from squire.studies.compared_methods import Learned, Task

BEST_RULES = 5  # noisy-or of so many, as PyClause's documentation advises


def import_pyclause() -> tuple[Any, Any]:
    """The modules `clause` and `c_clause`."""
    try:
        import c_clause
        import clause
    except ImportError as error:
        raise SettingError(
            f"PyClause is not installed ({error}), and not on PyPI, whose `clause` is another project. It needs a "
            "C++ compiler and Java: pip install git+https://github.com/symbolic-kg/PyClause.git"
        ) from error
    return clause, c_clause


def learn_rules(task: Task) -> Learned:
    """A row of the comparison: learning has the whole time."""
    clause, _ = import_pyclause()
    data, rules = task.folder / "train.txt", task.folder / "rules.txt"
    task.folder.mkdir(parents=True, exist_ok=True)
    data.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in task.graph.train.triples.tolist()))
    options = clause.Options()
    options.set("learner.mode", "anyburl")
    options.set("learner.anyburl.time", round(60 * task.minutes))
    clause.Learner(options=options.get("learner")).learn_rules(path_data=str(data), path_output=str(rules))
    engine = PyClauseEngine(str(data), str(rules), task.graph.num_entities, task.graph.num_relations)

    def rank(query_set: QuerySet) -> Ranks:
        return rank_by_scores(query_set, engine.scores, "pyclause", aggregation=f"noisy-or{BEST_RULES}")

    return Learned(rank, f"AnyBURL's rules, {sum(1 for _ in rules.open()):,}")


class PyClauseEngine:
    """Rules in a file or as lines, applied by PyClause to data whose labels are e12 and r3."""

    def __init__(
        self, data: Any, rules: Any, num_entities: int, num_relations: int, best: int = BEST_RULES, **loading: Any
    ) -> None:
        """`loading` are options of PyClause's loader, such as b_num_unseen=10."""
        clause, self._library = import_pyclause()
        self.num_entities, self.num_relations = num_entities, num_relations
        self._options = clause.Options()
        for key, value in loading.items():
            self._options.set(f"loader.{key}", value)
        answering = {"aggregation_function": "noisyor", "num_top_rules": best, "topk": num_entities}
        # Known answers are left in: the evaluator filters.
        for key, value in {**answering, "disc_at_least": -1, "filter_w_data": False}.items():
            self._options.set(f"qa_handler.{key}", value)
        self._loader = self._library.Loader(options=self._options.get("loader"))
        self._loader.load_data(data=data)
        self._loader.load_rules(rules=rules)

    def scores(self, queries: Ids) -> npt.NDArray[np.float64]:
        """(query, 2) -> (query, entity); −inf where no rule predicts an entity."""
        found = np.full((len(queries), self.num_entities), -np.inf)
        backward = is_inverse(queries[:, 1], self.num_relations)
        for direction, rows in (("tail", np.flatnonzero(~backward)), ("head", np.flatnonzero(backward))):
            asked = [(f"e{h}", f"r{r % self.num_relations}") for h, r in queries[rows].tolist()]
            if asked:
                handler = self._library.QAHandler(options=self._options.get("qa_handler"))
                handler.calculate_answers(queries=asked, loader=self._loader, direction=direction)
                for row, answers in zip(rows.tolist(), handler.get_answers(as_string=True), strict=True):
                    for entity, score in answers:
                        found[row, int(entity[1:])] = score
        return found
