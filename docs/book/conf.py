"""Sphinx's settings: https://www.sphinx-doc.org/en/master/usage/configuration.html."""

project = "Profiling PyTorch on AMD GPUs"
extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["downloads"]
templates_path = ["templates"]
# Text that is to be typed, such as a dictionary, keeps its straight quotes.
smartquotes = False
html_theme = "furo"
html_title = project
html_logo = html_favicon = "static/favicon.svg"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
# The code blocks with options on tidyprof's page have a language of their own, which only a test
# knows.
suppress_warnings = ["misc.highlighting_failure"]
# Styles with enough contrast on the background of each theme.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

# Text without a language is a command or a file; lessons state that they are Python.
highlight_language = "none"

# The output of a cell is not for copying.
copybutton_selector = ":not(.output) > div.highlight > pre"

nb_execution_mode = "off"
nb_code_prompt_show = "Show a solution and what came out"
nb_code_prompt_hide = "Hide the solution"
# Load no script from elsewhere.
nb_ipywidgets_js = {}

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3
