"""The paper's studies, one function each: `squire.studies.ablation(...)` and so on, as `squire study ablation`.

A study records its work in a journal as it goes. Called again with the same arguments, it continues where it
stopped. The result has `as_dict()`, `markdown()`, `save(file)` and, where there is a picture, `draw(file)`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squire.studies.ablation_study import AblationResult as AblationResult
    from squire.studies.ablation_study import ablation as ablation
    from squire.studies.annotation_study import ANNOTATION as ANNOTATION
    from squire.studies.annotation_study import ANNOTATOR as ANNOTATOR
    from squire.studies.annotation_study import MEANINGS as MEANINGS
    from squire.studies.annotation_study import SCORES as SCORES
    from squire.studies.annotation_study import Agreement as Agreement
    from squire.studies.annotation_study import Annotations as Annotations
    from squire.studies.annotation_study import agreement as agreement
    from squire.studies.annotation_study import annotate as annotate
    from squire.studies.annotation_study import check_annotator as check_annotator
    from squire.studies.attention_study import AttentionMaps as AttentionMaps
    from squire.studies.attention_study import attention as attention
    from squire.studies.case_study import Cases as Cases
    from squire.studies.case_study import cases as cases
    from squire.studies.compare_study import Comparison as Comparison
    from squire.studies.compare_study import compare as compare
    from squire.studies.compare_study import measure_method as measure_method
    from squire.studies.constraint_study import ConstraintResult as ConstraintResult
    from squire.studies.constraint_study import constraint as constraint
    from squire.studies.efficiency_study import EfficiencyResult as EfficiencyResult
    from squire.studies.efficiency_study import efficiency as efficiency
    from squire.studies.efficiency_study import measure_size as measure_size
    from squire.studies.reports import Report as Report
    from squire.studies.review import Decision as Decision
    from squire.studies.review import Review as Review

_MODULES = {
    "ablation_study": ("AblationResult", "ablation"),
    "annotation_study": (
        "ANNOTATION",
        "ANNOTATOR",
        "MEANINGS",
        "SCORES",
        "Agreement",
        "Annotations",
        "agreement",
        "annotate",
        "check_annotator",
    ),
    "attention_study": ("AttentionMaps", "attention"),
    "case_study": ("Cases", "cases"),
    "compare_study": ("Comparison", "compare", "measure_method"),
    "constraint_study": ("ConstraintResult", "constraint"),
    "efficiency_study": ("EfficiencyResult", "efficiency", "measure_size"),
    "reports": ("Report",),
    "review": ("Decision", "Review"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a study when it is first used: most of them need torch, which takes a second."""
    if name not in _HOMES:
        raise AttributeError(f"module 'squire.studies' has no attribute {name!r}")
    return getattr(import_module(f"squire.studies.{_HOMES[name]}"), name)
