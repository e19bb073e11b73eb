"""The look of the site, for Sphinx; `tools.docs.site` brings the pages together. Needs nothing of the network."""

from __future__ import annotations

project = "TorchDevice"
html_title = "TorchDevice"
extensions = ["myst_parser"]  # CommonMark: pages look as they do on GitHub
root_doc = "README"
myst_heading_anchors = 6  # as GitHub makes them
myst_enable_extensions = ["html_image", "strikethrough", "tasklist"]
suppress_warnings = ["misc.highlighting_failure"]  # code in a language without a lexer is shown plain, as on GitHub
html_theme = "furo"  # dark and light, the reader's own fonts
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_use_index = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e65", "color-brand-content": "#0b6e65"},
    "dark_css_variables": {"color-brand-primary": "#4fd1c2", "color-brand-content": "#4fd1c2"},
}
