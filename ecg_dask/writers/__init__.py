"""The files that a run leaves: the table, the annotations, the summary."""

from .annotations import file_names, write_annotations
from .folder import MODEL, REPORT, SUMMARY, TABLE, result_folder
from .summary import versions, write_summary
from .table import write_table

__all__ = [
    "MODEL",
    "REPORT",
    "SUMMARY",
    "TABLE",
    "file_names",
    "result_folder",
    "versions",
    "write_annotations",
    "write_summary",
    "write_table",
]
