"""The files that a run leaves: the tables, the annotations, the summary."""

from .annotations import file_names, write_annotations
from .folder import MODEL, REPORT, SPANS, SUMMARY, TABLE, result_folder
from .summary import span_facts, versions, write_summary
from .table import write_table

__all__ = [
    "MODEL",
    "REPORT",
    "SPANS",
    "SUMMARY",
    "TABLE",
    "file_names",
    "result_folder",
    "span_facts",
    "versions",
    "write_annotations",
    "write_summary",
    "write_table",
]
