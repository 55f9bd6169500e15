"""Reads hbase-site.xml: the format of Hadoop's ``Configuration``, with the line of each property.

DIVERGENCES: ``<!DOCTYPE>`` and ``xi:include`` are refused, Hadoop follows them; ``${name}`` sees the other properties
of the file, not the environment. A file has a limit in bytes, before and after substitution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.parsers import expat

from metaclient.config.hbase_properties import Property
from metaclient.config.refusals import cut, refusal
from metaclient.errors import ConfigError

__all__ = ["find_site", "read_site"]

_SITE_BYTES_MAX = 4 << 20  # site files have kilobytes; bounds the memory for a wrong path and for ${}
_SUBSTITUTIONS_MAX = 20  # Configuration.MAX_SUBST of Hadoop 3; ends loops
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")


def find_site(text: str) -> Path:
    """Return the path of the site file that ``text`` names, itself or by its folder; ConfigError if there is none."""
    path = Path(text)
    try:
        path = path / "hbase-site.xml" if path.is_dir() else path
        if path.is_file():
            return path
        why = f"no file {cut(str(path))}"
    except OSError as error:  # for example a name that is too long, or a folder without permission
        why = f"cannot be looked up: {error.strerror}"
    raise refusal("config", text, "keyword", why, "the path of an hbase-site.xml, or of its folder")


def read_site(path: Path) -> dict[str, Property]:
    """Return the properties of a site file, with ``${name}`` replaced; ConfigError if it is unreadable or malformed."""
    try:
        with path.open("rb") as file:
            data = file.read(_SITE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
    if len(data) > _SITE_BYTES_MAX:
        raise ConfigError(f"{path}: more than {_SITE_BYTES_MAX} bytes; is it an hbase-site.xml?")
    return _all_substituted(path, _SiteParser(path).parse(data))


def _all_substituted(path: Path, raw: Mapping[str, Property]) -> dict[str, Property]:
    size = 0
    done = {}
    for name, each in raw.items():
        done[name] = _substituted(each, raw)
        size += len(done[name].text)
        if size > _SITE_BYTES_MAX:
            raise ConfigError(f"{path}: more than {_SITE_BYTES_MAX} bytes after substitution; is it an hbase-site.xml?")
    return done


def _substituted(given: Property, raw: Mapping[str, Property]) -> Property:
    """Return ``given`` with each ``${name}`` replaced; unknown names are kept, as in Hadoop."""
    text, start, substitutions = given.text, 0, 0
    while match := _VARIABLE.search(text, start):
        if match[1] not in raw:
            start = match.end()
        elif substitutions < _SUBSTITUTIONS_MAX:
            text = text[: match.start()] + raw[match[1]].text + text[match.end() :]
            substitutions += 1
        else:
            why = "${} refers to itself, or is nested too deeply"
            allowed = f"{_SUBSTITUTIONS_MAX} substitutions; write the value out"
            raise refusal(given.name, given.text, given.source, why, allowed)
    return given._replace(text=text)


class _SiteParser:
    """A parser of Hadoop's configuration format that keeps the line of each property.

    ElementTree keeps no line numbers and expands entities. This parser fails at a DOCTYPE, before any entity.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._properties: dict[str, Property] = {}
        self._final: set[str] = set()
        self._depth = 0  # 1: configuration, 2: property, 3: name, value, final
        self._line = 0  # of the current property
        self._parts: dict[str, list[str]] = {}  # the elements of the current property
        self._part: list[str] = []  # the current element
        self._expat = expat.ParserCreate()
        self._expat.StartDoctypeDeclHandler = self._on_doctype
        self._expat.StartElementHandler = self._on_start
        self._expat.CharacterDataHandler = self._on_text
        self._expat.EndElementHandler = self._on_end

    def parse(self, data: bytes) -> dict[str, Property]:
        try:
            self._expat.Parse(data, True)
        except ConfigError:
            raise
        except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: encodings that expat cannot read
            raise self._error(f"broken XML: {error}; correct the file", self._expat.ErrorLineNumber) from error
        return self._properties

    def _error(self, why: str, line: int) -> ConfigError:
        return ConfigError(f"{self._path}:{line}: {why}")

    def _on_doctype(self, *_: object) -> None:
        raise self._error("a DOCTYPE is refused, because its entities can fill the memory; remove it", self._here())

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag != "configuration":
            raise self._error(f"<{cut(tag)}> in place of <configuration>; is it an hbase-site.xml?", self._here())
        if tag.rpartition(":")[2] == "include":
            raise self._error("an include is not followed; put all properties into one file", self._here())
        if self._depth == 2:
            self._line = self._here()
            self._parts = {name: [text] for name, text in attributes.items()}  # <property name="" value=""/>: Hadoop 3
        elif self._depth == 3:
            self._part = self._parts[tag] = []

    def _here(self) -> int:
        return self._expat.CurrentLineNumber

    def _on_text(self, text: str) -> None:
        if self._depth == 3:
            self._part.append(text)

    def _on_end(self, tag: str) -> None:
        if self._depth == 2 and tag == "property":
            self._add({name: "".join(texts).strip() for name, texts in self._parts.items()})
        self._depth -= 1

    def _add(self, parts: Mapping[str, str]) -> None:
        name = parts.get("name")
        if not name or "value" not in parts:
            missing = f"<value> in the property {cut(name)}" if name else "<name> in a property"
            raise self._error(f"no {missing}; add it or remove the property", self._line)
        if name not in self._final:  # the last property of a name wins, unless an earlier one is final, as in Hadoop
            self._properties[name] = Property(name, parts["value"], f"{self._path}:{self._line}")
        if parts.get("final") == "true":
            self._final.add(name)
