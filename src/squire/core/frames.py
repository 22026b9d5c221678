"""Tables for people: pandas data frames, if pandas is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from squire.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd


def to_frame(data: Any) -> pd.DataFrame:
    """An Arrow table, a list of rows or a mapping of columns as a pandas data frame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise SettingError(f"to_frame needs pandas ({error}): pip install pandas") from None
    return data.to_pandas() if isinstance(data, pa.Table) else pd.DataFrame(data)
