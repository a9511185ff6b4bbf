"""Settings for Sphinx: https://www.sphinx-doc.org/en/master/usage/configuration.html."""

project = "Profiling PyTorch on AMD GPUs"
extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["downloads"]
templates_path = ["templates"]
# Keep straight quotes in text that readers type, such as a dictionary.
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
# The code blocks with options on tidyprof's page have a special language that only a test uses.
suppress_warnings = ["misc.highlighting_failure"]
# These styles have enough contrast on each theme's background.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

# Text without a language is a command or a file. Lessons state that their code is Python.
highlight_language = "none"

# Cell outputs don't get a copy button.
copybutton_selector = ":not(.output) > div.highlight > pre"

nb_execution_mode = "off"
nb_code_prompt_show = "Show a solution and its output"
nb_code_prompt_hide = "Hide the solution"
# Don't load scripts from other sites.
nb_ipywidgets_js = {}

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3
