"""A measurement rendered: tables, JSON records, pages. Nothing here measures or decides."""

from mpctl.report.build import deciding
from mpctl.report.record import measurement_record, operation_record, plan_record
from mpctl.report.text_table import comparison_rows, gate_rows, tail_text
from mpctl.report.values import price_text
from mpctl.report.words import result_in_words

__all__ = [
    "comparison_rows",
    "deciding",
    "gate_rows",
    "measurement_record",
    "operation_record",
    "plan_record",
    "price_text",
    "result_in_words",
    "tail_text",
]
