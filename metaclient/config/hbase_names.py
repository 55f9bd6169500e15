"""Decides which property sets which field: HBase's key, ``metaclient.<field>``, and deprecated names.

If several names of one field are given, ``metaclient.<field>`` wins over HBase's key, and HBase's key over HBase's
deprecated key. ``hbase_properties`` has the table of names that set no field.
"""

from __future__ import annotations

import logging
import numbers
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from metaclient.config.hbase_properties import (
    CLIENT_PREFIXES,
    MAPPING,
    NameKind,
    Properties,
    Property,
    hbase_names,
    is_from_file,
    kind_of,
    nearest_name,
    refuse_or_warn,
    warn,
)
from metaclient.config.refusals import cut, refusal
from metaclient.config.rules import (
    DEADLINE,
    FLAG,
    PLAIN,
    UNLIMITED_S,
    FieldRule,
    FieldSpec,
    MetaMode,
    NotAllowedError,
    Unit,
    Word,
)
from metaclient.config.security import PROPERTIES as SECURITY_PROPERTIES
from metaclient.config.site_xml import find_site, read_site
from metaclient.errors import ConfigError, ConfigWarning

__all__ = [
    "DEPRECATED",
    "OF_BACKENDS",
    "OWN_PREFIX",
    "PropertyNames",
    "as_given",
    "checked_properties",
    "property_of",
    "read_only",
]

_LOGGER = logging.getLogger(__name__)
#: Each field is also a property, ``metaclient.<field>``, in the unit of the field.
OWN_PREFIX: Final = "metaclient."
#: Deprecated name -> what to write instead.
DEPRECATED: Final[Mapping[str, str]] = {
    "hbase.meta.replicas.use": "write hbase.locator.meta.replicas.mode=HedgedRead",
    "hbase.meta.replicas.mode": "never released; write hbase.locator.meta.replicas.mode",
    "hbase.client.pause.cqtbe": "write hbase.client.pause.server.overloaded",
    "hbase.client.primaryCallTimeout.scan": "HBase does not read it; write hbase.client.replicaCallTimeout.scan",
}
_EARLY_MODE: Final = Word({"HighAvailable": MetaMode.HEDGED_READ, "LoadBalance": MetaMode.LOAD_BALANCE})
#: Properties without a field that backends read: addresses and security settings.
OF_BACKENDS: Final = frozenset({"hbase.client.bootstrap.servers", *SECURITY_PROPERTIES})
# Server properties with the prefix of client properties: no warning if they are in a file, which servers share.
_OF_SERVERS: Final = (
    "hbase.rpc.rows.size.threshold.reject",
    "hbase.rpc.rows.warning.threshold",
    "hbase.rpc.server.impl",
    "hbase.rpc.tls.",
)
# Client property of HBase without an effect here -> what to do instead. For other such properties there is no advice.
_INSTEAD: Final[Mapping[str, str]] = {
    "hbase.client.ipc.pool.size": "write ?connections=N into a thrift url; HBase's own RPC needs one per server",
    "hbase.client.keyvalue.maxsize": "the server's hbase.server.keyvalue.maxsize limits cells",
    "hbase.client.max.total.tasks": "write metaclient.threads_max",
    "hbase.client.registry.impl": "the scheme of the url chooses: hbase:// uses ZooKeeper, hbase+rpc:// the masters",
    "hbase.client.write.buffer": "give batch_size to Table.batch",
    "hbase.ipc.client.specificThreadForWriting": "no call is interrupted here, so writes need no thread of their own",
}


class PropertyNames:
    """The properties that set the fields of a configuration, and the check of all other property names."""

    def __init__(self, specs: Mapping[str, FieldSpec]) -> None:
        self._specs = specs
        self._fields = (*specs, "properties")
        self._own_names = frozenset(OWN_PREFIX + name for name in specs)
        self._honoured = self._own_names | OF_BACKENDS | {spec.key for spec in specs.values() if spec.key}
        # A field by HBase's key as people write it as a keyword: hbase_rpc_timeout for hbase.rpc.timeout.
        self._by_key = {_as_keyword(spec.key): name for name, spec in specs.items() if spec.key}

    def require_fields(self, keywords: Iterable[str]) -> None:
        """Raise ConfigError, with the field that was probably meant, for the first keyword that is no field."""
        for keyword in keywords:
            field = None if keyword in self._fields else self._by_key.get(_as_keyword(keyword))
            if field is not None:
                key = self._specs[field].key
                raise ConfigError(
                    f"{cut(keyword)} (keyword): no such option; write {field}=, "
                    f"or config={{{key!r}: value}} in HBase's unit"
                )
            _require_known([keyword], self._fields, "keyword", "option")

    def all_names(self) -> frozenset[str]:
        """Return the names of all client properties of HBase and metaclient, also those without an effect."""
        return self._honoured | set(DEPRECATED) | {name for name in hbase_names() if name.startswith(CLIENT_PREFIXES)}

    def read_properties(self, config: object) -> dict[str, Property]:
        """Return the properties of a mapping or a site file; ConfigError for a name that is refused."""
        if isinstance(config, Properties):  # of another Config, whose construction has checked the names
            return {name: Property(name, text, config.source(name)) for name, text in config.items()}
        if isinstance(config, Mapping):
            return self._check_names({name: property_of(name, value) for name, value in config.items()})
        path = os.fspath(config) if isinstance(config, str | os.PathLike) else None
        if not path or not isinstance(path, str):
            allowed = "a path to hbase-site.xml or its folder, a mapping of HBase's properties, a Config, None"
            raise refusal("config", config, "keyword", "cannot be read as settings", allowed)
        site = find_site(path)
        # Hadoop's own settings are in another file of the folder; HBase reads it first, so hbase-site.xml wins.
        core = site.with_name("core-site.xml")
        found = read_site(core) if site.name == "hbase-site.xml" and core.is_file() else {}
        return self._check_names({**found, **read_site(site)})

    def _check_names(self, properties: Mapping[str, Property]) -> dict[str, Property]:
        """Raise or warn for each property without an effect; return the properties to keep."""
        return {name: each for name, each in properties.items() if self._is_kept(each)}

    def _is_kept(self, given: Property) -> bool:
        """Return False for a misspelt name in a file, because no code reads it."""
        if given.name in self._fields:
            raise ConfigError(
                f"{given.name} ({given.source}): fields are keywords; as a property write {OWN_PREFIX}{given.name}"
            )
        if "." not in given.name and not is_from_file(given.source):  # no property has such a name
            near = nearest_name(given.name, self._fields)
            refuse_or_warn(given.name, given.source, near and OWN_PREFIX + near)
        if given.name.startswith(OWN_PREFIX):
            _require_known([given.name], self._own_names, given.source, "property")
        elif given.name in DEPRECATED:
            warn(f"{given.name} ({given.source}) is deprecated: {DEPRECATED[given.name]}", DeprecationWarning)
        elif given.name not in self._honoured:
            return self._is_unused_kept(given)
        return True

    def _is_unused_kept(self, given: Property) -> bool:
        name, source = given.name, given.source
        is_client = name.startswith(CLIENT_PREFIXES)
        kind, near = kind_of(name)
        if kind is NameKind.MISSPELT or (is_client and kind is not NameKind.HBASE):
            refuse_or_warn(name, source, near or nearest_name(name, self.all_names()))
            return False
        is_for_all = is_client and not (is_from_file(source) and name.startswith(_OF_SERVERS))
        if is_for_all or (kind is NameKind.STRANGE and not is_from_file(source)):
            instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
            warn(f"{name} ({source}) has no effect here{instead}", ConfigWarning)
        elif kind is not NameKind.HBASE:
            _LOGGER.debug("%s (%s) is the property of another program", name, source)
        return True

    def read_fields(self, properties: Mapping[str, Property]) -> dict[str, tuple[object, str]]:
        """Return field -> (value, source); ConfigError for a value that is malformed or out of range."""
        read: dict[str, tuple[object, str]] = {}
        for name, spec in self._specs.items():
            for key, unit in ((spec.old_key, spec.unit), (spec.key, spec.unit), (OWN_PREFIX + name, spec.rule.own)):
                if key in properties:
                    read[name] = _value_of(properties[key], spec.rule, unit), properties[key].source
        return {**read, **_read_old_mode(properties, read.get("meta_mode", (None, ""))[0])}


def _read_old_mode(properties: Mapping[str, Property], mode: object) -> dict[str, tuple[object, str]]:
    """Return the meta mode that the deprecated names set, or nothing if the present name sets one.

    As AsyncNonMetaRegionLocator of HBase 3.x: the present name wins, and ``use`` counts if the mode is None.
    """
    early, use = properties.get("hbase.meta.replicas.mode"), properties.get("hbase.meta.replicas.use")
    early_mode = early and _value_of(early, _EARLY_MODE, PLAIN)
    is_used = use and _value_of(use, FLAG, PLAIN)
    if early and mode is None:
        return {"meta_mode": (early_mode, early.source)}
    if use and is_used and mode in (None, MetaMode.NONE):
        return {"meta_mode": (MetaMode.HEDGED_READ, use.source)}
    if use and not is_used and mode is None:  # written explicitly: read the primary only
        return {"meta_mode": (MetaMode.NONE, use.source)}
    return {}


def _value_of(given: Property, rule: FieldRule, unit: Unit) -> object:
    try:
        value = rule.parse(given.text)
        if rule is DEADLINE and DEADLINE.parse(given.text) <= 0 and not given.name.startswith(OWN_PREFIX):
            return _unlimited(given)
        return rule.check(value, unit)
    except NotAllowedError as error:
        raise refusal(given.name, given.text, given.source, error, rule.allowed(unit)) from None


def _unlimited(given: Property) -> float:
    # As a keyword the value is refused. As a property it may be in a file of Java programs, for which it is valid.
    warn(f"{given.name} = {given.text} ({given.source}) is no limit in HBase; 24 hours are used", ConfigWarning)
    return UNLIMITED_S


def _as_keyword(key: str) -> str:
    return key.lower().replace(".", "_")


def _require_known(names: Iterable[str], known: Collection[str], source: str, what: str) -> None:
    """Raise ConfigError, with the nearest known name, for the first name that is not known."""
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            advice = f"did you mean {nearest}?" if nearest else "nothing known is near; remove it"
            raise ConfigError(f"{cut(name)} ({source}): no such {what}; {advice}")


def property_of(name: object, value: object) -> Property:
    """Return an entry of a mapping as a property; ConfigError if its name or its value is of a wrong type."""
    if not isinstance(name, str):
        raise refusal("a property's name", name, MAPPING, "not text", "text, such as hbase.rpc.timeout")
    try:
        if isinstance(value, bool):
            return Property(name, str(value).lower(), MAPPING)
        if isinstance(value, str | numbers.Real):
            return Property(name, str(value).strip(), MAPPING)
    except ValueError:  # an int of more digits than Python prints
        pass
    raise refusal(name, value, MAPPING, "not a property's value", "text, a number or a bool")


def checked_properties(properties: Mapping[str, str], source: str) -> Mapping[str, str]:
    """Return properties whose names ``Config.of`` does not check, because another process has checked them."""
    return Properties(properties, dict.fromkeys(properties, source))


def as_given(properties: Mapping[str, Property]) -> Properties:
    """Return the properties as an immutable mapping of name to text that keeps their sources."""
    return Properties(
        {name: each.text for name, each in properties.items()}, {name: each.source for name, each in properties.items()}
    )


def read_only(properties: object) -> Properties:
    """Return an immutable copy of a mapping of properties; ConfigError if it is no mapping of names to values."""
    if not isinstance(properties, Mapping):
        raise refusal("properties", properties, "keyword", "not a mapping", "a mapping of names to text")
    if isinstance(properties, Properties):
        return properties
    return Properties({name: property_of(name, value).text for name, value in properties.items()})
