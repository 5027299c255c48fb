"""Pages: of a fit, of a comparison, of a choice of components; and the folder they lie in."""

from inference.report.choice_page import write_choice_report
from inference.report.comparison import write_comparison_report
from inference.report.components import why, write_selection_report
from inference.report.fit import HasText, write_report
from inference.report.how_many import how_many_sections, write_how_many_report
from inference.report.latent_use import latents
from inference.report.page import html_of, number, picture, write_page
from inference.report.parts import (
    Bullets,
    Details,
    Equations,
    Finding,
    Heading,
    Note,
    Paragraph,
    Part,
    Picture,
    Section,
    Table,
    Verbatim,
    Verdict,
    Warned,
)
from inference.report.results_folder import (
    check_output_folder,
    read_results,
    summarise,
    write_results,
)
from inference.report.sections import (
    Subject,
    estimates,
    fitted,
    middle,
    predictive,
    settings,
    shape_text,
)
from inference.report.verdicts import verdict, verdict_of

__all__ = [
    "write_choice_report",
    "write_comparison_report",
    "why",
    "write_selection_report",
    "how_many_sections",
    "write_how_many_report",
    "HasText",
    "write_report",
    "Bullets",
    "Details",
    "Equations",
    "Finding",
    "Heading",
    "Note",
    "Paragraph",
    "Part",
    "Picture",
    "Section",
    "Table",
    "Verbatim",
    "Verdict",
    "Warned",
    "html_of",
    "number",
    "picture",
    "write_page",
    "check_output_folder",
    "read_results",
    "summarise",
    "write_results",
    "Subject",
    "estimates",
    "fitted",
    "latents",
    "middle",
    "predictive",
    "settings",
    "shape_text",
    "verdict",
    "verdict_of",
]
