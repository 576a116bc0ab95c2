"""A measurement for people and for programs. Text in tables, records for JSON; nothing here measures or decides."""

from mpctl.report.record import comparison_record, operation_record
from mpctl.report.table import comparison_rows, gate_rows

__all__ = ["comparison_record", "comparison_rows", "gate_rows", "operation_record"]
