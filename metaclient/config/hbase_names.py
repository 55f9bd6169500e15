"""Which property of HBase sets which field: keys, own names, aliases, deprecated names; and which names have no effect.

Of several names for one field the most specific one wins: ``metaclient.<field>``, then HBase's key, then HBase's
deprecated key. ``hbase_properties`` has the rule for names that set nothing.
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
    FieldSpec,
    MetaMode,
    NotAllowedError,
    Rule,
    Unit,
    Word,
)
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
    "require_known",
]

_LOGGER = logging.getLogger(__name__)
#: ``metaclient.<field>`` is our own property of each field, in the unit of the field.
OWN_PREFIX: Final = "metaclient."
DEPRECATED: Final[Mapping[str, str]] = {  # old name -> what to do
    "hbase.meta.replicas.use": "write hbase.locator.meta.replicas.mode=HedgedRead",
    "hbase.meta.replicas.mode": "never released; write hbase.locator.meta.replicas.mode",
    "hbase.client.pause.cqtbe": "write hbase.client.pause.server.overloaded",
    "hbase.client.primaryCallTimeout.scan": "HBase does not read it; write hbase.client.replicaCallTimeout.scan",
}
_EARLY_MODE: Final = Word({"HighAvailable": MetaMode.HEDGED_READ, "LoadBalance": MetaMode.LOAD_BALANCE})
# Read by backends, which get all properties: the place of the cluster, and what the native backend cannot do.
OF_BACKENDS: Final = frozenset(
    {"hbase.client.bootstrap.servers", "hbase.client.netty.tls.enabled", "hbase.rpc.protection"}
)
# Below a prefix of the client, and read by servers: no reason for a warning about a file that both share.
_OF_SERVERS: Final = (
    "hbase.rpc.rows.size.threshold.reject",
    "hbase.rpc.rows.warning.threshold",
    "hbase.rpc.server.impl",
    "hbase.rpc.tls.",
)
# Client properties of HBase that have no effect here, and what to do instead; all others of them just have none.
_INSTEAD: Final[Mapping[str, str]] = {
    "hbase.client.ipc.pool.size": "write ?connections=N into a thrift url; HBase's own RPC needs one per server",
    "hbase.client.keyvalue.maxsize": "the server's hbase.server.keyvalue.maxsize limits cells",
    "hbase.client.max.total.tasks": "write metaclient.threads_max",
    "hbase.client.registry.impl": "the scheme of the url chooses: hbase:// asks ZooKeeper, hbase+rpc:// the masters",
    "hbase.client.write.buffer": "give batch_size to Table.batch",
    "hbase.ipc.client.specificThreadForWriting": "no call is interrupted here, so writes need no thread of their own",
}


class PropertyNames:
    """The names that set the fields of a configuration, and what becomes of all other names."""

    def __init__(self, specs: Mapping[str, FieldSpec]) -> None:
        self._specs = specs
        self._fields = (*specs, "properties")
        self._own_names = frozenset(OWN_PREFIX + name for name in specs)
        self._honoured = self._own_names | OF_BACKENDS | {spec.key for spec in specs.values() if spec.key}

    def all_names(self) -> frozenset[str]:
        """HBase's client properties and ours, as HBase writes them (some have capitals); not all have an effect."""
        return self._honoured | set(DEPRECATED) | {name for name in hbase_names() if name.startswith(CLIENT_PREFIXES)}

    def read_properties(self, config: object) -> dict[str, Property]:
        if isinstance(config, Properties):  # another Config's: judged when that was made
            return {name: Property(name, text, config.source(name)) for name, text in config.items()}
        if isinstance(config, Mapping):
            return self._judged({name: property_of(name, value) for name, value in config.items()})
        path = os.fspath(config) if isinstance(config, str | os.PathLike) else None
        if not path or not isinstance(path, str):
            allowed = "a path to hbase-site.xml or its folder, a mapping of HBase's properties, a Config, None"
            raise refusal("config", config, "keyword", "none of what can be read", allowed)
        return self._judged(read_site(find_site(path)))

    def _judged(self, properties: Mapping[str, Property]) -> dict[str, Property]:
        """Raise or warn for each property without an effect (hbase_properties has the rule); return those to keep."""
        return {name: each for name, each in properties.items() if self._is_kept(each)}

    def _is_kept(self, given: Property) -> bool:
        """True unless nothing could read it: it is misspelt, in a file."""
        if given.name in self._fields:
            raise ConfigError(
                f"{given.name} ({given.source}): fields are keywords; as a property write {OWN_PREFIX}{given.name}"
            )
        if "." not in given.name and not is_from_file(given.source):  # a misspelt field, or of something else
            near = nearest_name(given.name, self._fields)
            refuse_or_warn(given.name, given.source, near and OWN_PREFIX + near)
        if given.name.startswith(OWN_PREFIX):
            require_known([given.name], self._own_names, given.source, "property")
        elif given.name in DEPRECATED:
            warn(f"{given.name} ({given.source}) is deprecated: {DEPRECATED[given.name]}", DeprecationWarning)
        elif given.name not in self._honoured:
            return self._is_unread_kept(given)
        return True

    def _is_unread_kept(self, given: Property) -> bool:
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
        """Field -> (value, source) from properties; of several names for a field the most specific one wins."""
        read: dict[str, tuple[object, str]] = {}
        for name, spec in self._specs.items():
            for key, unit in ((spec.old_key, spec.unit), (spec.key, spec.unit), (OWN_PREFIX + name, spec.rule.own)):
                if key in properties:
                    read[name] = _value_of(properties[key], spec.rule, unit), properties[key].source
        return {**read, **_read_old_mode(properties, read.get("meta_mode", (None, ""))[0])}


def _read_old_mode(properties: Mapping[str, Property], mode: object) -> dict[str, tuple[object, str]]:
    """What HBase's older names say about the mode, where the present name leaves room for it.

    As AsyncNonMetaRegionLocator of HBase 3.x: the present name wins, and ``use`` counts where the mode is None.
    """
    early, use = properties.get("hbase.meta.replicas.mode"), properties.get("hbase.meta.replicas.use")
    early_mode = early and _value_of(early, _EARLY_MODE, PLAIN)
    is_used = use and _value_of(use, FLAG, PLAIN)
    if early and mode is None:
        return {"meta_mode": (early_mode, early.source)}
    if use and is_used and mode in (None, MetaMode.NONE):
        return {"meta_mode": (MetaMode.HEDGED_READ, use.source)}
    if use and not is_used and mode is None:  # said, and not only the default: the primary alone
        return {"meta_mode": (MetaMode.NONE, use.source)}
    return {}


def _value_of(given: Property, rule: Rule, unit: Unit) -> object:
    try:
        value = rule.parse(given.text)
        if rule is DEADLINE and DEADLINE.parse(given.text) <= 0 and not given.name.startswith(OWN_PREFIX):
            return _unlimited(given)
        return rule.check(value, unit)
    except NotAllowedError as error:
        raise refusal(given.name, given.text, given.source, error, rule.allowed(unit)) from None


def _unlimited(given: Property) -> float:
    # Not refused, as a keyword is: the file may be shared with Java programs, for which the value is right.
    warn(f"{given.name} = {given.text} ({given.source}) is no limit in HBase; 24 hours are used", ConfigWarning)
    return UNLIMITED_S


def require_known(names: Iterable[str], known: Collection[str], source: str, what: str) -> None:
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            advice = f"did you mean {nearest}?" if nearest else "nothing known is near; remove it"
            raise ConfigError(f"{cut(name)} ({source}): no such {what}; {advice}")


def property_of(name: object, value: object) -> Property:
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
    """Properties whose names were judged before, in another process say: ``Config.of`` takes them without a warning."""
    return Properties(properties, dict.fromkeys(properties, source))


def as_given(properties: Mapping[str, Property]) -> Properties:
    return Properties(
        {name: each.text for name, each in properties.items()}, {name: each.source for name, each in properties.items()}
    )


def read_only(properties: object) -> Properties:
    if not isinstance(properties, Mapping):
        raise refusal("properties", properties, "keyword", "not a mapping", "a mapping of names to text")
    if isinstance(properties, Properties):
        return properties
    return Properties({name: property_of(name, value).text for name, value in properties.items()})
