"""Tables for people: pandas data frames, if pandas is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from squire.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd


def to_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows as a pandas data frame."""
    try:
        import pandas as pd
    except ImportError:
        raise SettingError("to_frame needs pandas: pip install pandas.") from None
    return pd.DataFrame(list(rows))
