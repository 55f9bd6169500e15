"""Prepares docstrings for the API reference: roles become code, sessions become fences, private parameters go."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?(?P<name>[^`]+)`")
#: A sentence for readers of the code: tests/architecture/test_sizes.py asks for it.
_SIZE = re.compile(
    r"\n*^(?:It has|The (?:class|module|file) has) more than \d+ (?:methods|lines) because[^\n]*(?:\n(?!\n)[^\n]*)*",
    re.MULTILINE,
)
_SESSION = re.compile(r"^(?P<indent>[ ]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: a role such as ``:class:`~a.B` `` becomes code, a session a fence."""
    text = _SIZE.sub("", docstring)
    text = _ROLE.sub(lambda match: f"`{match['name'].rsplit('.', 1)[-1]}`", text)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    return _SESSION.sub(lambda match: f"{match['indent']}```pycon\n{match[0]}\n{match['indent']}```", text)


class Docstrings(griffe.Extension):
    """The extension that mkdocs.yml names."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
        if isinstance(obj, griffe.Function):
            for parameter in [one for one in obj.parameters if one.name.startswith("_")]:
                del obj.parameters[parameter.name]
