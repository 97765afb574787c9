"""Sphinx configuration."""

from importlib.metadata import version as installed_version

from aiodocadma.emulator import Counters

project = "aiodocadma"
author = "the aiodocadma authors"
copyright = "2026, the aiodocadma authors"
release = version = installed_version("aiodocadma")  # the reference is made from the installed package

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"  # a field explained as an attribute is no parameter, too
napoleon_custom_sections = [("Cancellation", "returns_style"), ("Source", "returns_style")]
html_theme = "furo"
html_title = f"aiodocadma {release}"
html_static_path = ["_static"]
html_css_files = ["diagrams.css"]
exclude_patterns = ["_build"]

_NAMED_TUPLE_FIELD = type(Counters.arms)


def setup(app):
    # "Alias for field number 0": the docstring of the class has more to say.
    app.connect(
        "autodoc-skip-member",
        lambda app, what, name, value, skip, options: True if isinstance(value, _NAMED_TUPLE_FIELD) else None,
    )
