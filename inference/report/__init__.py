"""Pages: of a fit, of a comparison, of a choice of components; and the folder they lie in."""

from typing import TYPE_CHECKING

from ppl_models.parts.surface import on_first_use as _on_first_use

if TYPE_CHECKING:
    from inference.report.answers import write_choice_report as write_choice_report
    from inference.report.comparison import write_comparison_report as write_comparison_report
    from inference.report.components import write_selection_report as write_selection_report
    from inference.report.fit import HasText as HasText, write_report as write_report

__getattr__, __dir__ = _on_first_use(__name__)
