"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "aiodocadma"
author = "the aiodocadma authors"
copyright = "2026, the aiodocadma authors"
release = version = installed_version("aiodocadma")  # the reference is made from the installed package

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_custom_sections = [("Cancellation", "returns_style"), ("Source", "returns_style")]
html_theme = "furo"
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]  # each exception has two homes, and seen from a third module either will do
