"""The files that a run leaves: the table, the annotations, the summary."""

from .annotations import file_names, write_annotations
from .summary import versions, write_summary
from .table import write_table

__all__ = ["file_names", "versions", "write_annotations", "write_summary", "write_table"]
