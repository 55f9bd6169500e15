"""A catalog of Spark (``TableCatalog``) whose tables are the tables of an HBase cluster: ``hbase.use``.

``spark.table("hbase.users")``, ``SHOW TABLES IN hbase``, ``INSERT INTO hbase.users`` and ``CREATE TABLE hbase.people``
work. Spark loads catalogs by the name of a Java class; here the object is put into the session's ``CatalogManager``
instead. It is therefore a catalog of one session: ``spark.newSession()`` needs ``hbase.use`` again.

Columns come from the catalogs that were given to ``use`` or from ``CREATE TABLE``; without one they are sampled.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.errors import ConfigError, TableNotFound
from spark_connector import clients
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.sampled import sample_table
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.columns import mapping_of
from spark_connector.settings.options import Options, field_named
from spark_connector.tables.jvm import JavaProxy, SessionJvm
from spark_connector.tables.scans import HBaseTable
from spark_connector.writing.destination import region_splits

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["HBaseCatalog", "install"]

_log = logging.getLogger(__name__)
_PACKAGE = "org.apache.spark.sql.connector.catalog"
_DEFAULT = "default"
#: Properties that Spark adds to those of CREATE TABLE; ``option.NAME`` repeats an option.
_SPARKS = frozenset({"provider", "owner", "external", "comment", "location", "is_managed_location", "table_type"})


class HBaseCatalog(JavaProxy):
    """The tables of one cluster. ``given`` are the options of all tables, ``catalogs`` table -> catalog as JSON."""

    class Java:
        implements = (f"{_PACKAGE}.TableCatalog", f"{_PACKAGE}.SupportsNamespaces")

    def __init__(self, java: SessionJvm, name: str, given: Mapping[str, str], catalogs: Mapping[str, str]) -> None:
        super().__init__(java)
        self._name = name
        self._given = dict(given)
        self._options = Options.parse(self._given).resolved()
        clients.check_reachable(self._options.connection_url)
        self._mappings: dict[str, dict[str, str]] = {
            _full_name(table): {"catalog": text} for table, text in catalogs.items()
        }
        self._tables: dict[str, Any] = {}  # one Java proxy per table: Spark compares tables of cached plans

    # -- CatalogPlugin

    def initialize(self, name: str, options: Any) -> None:
        """Do nothing: Spark calls it for catalogs that it creates itself."""

    def name(self) -> str:
        return self._name

    def toString(self) -> str:
        return f"HBase catalog {self._name}"

    def defaultNamespace(self) -> Any:
        return self._strings([_DEFAULT])

    # -- namespaces

    def listNamespaces(self, *within: Any) -> Any:
        found = [] if within and len(within[0]) else self._namespaces()
        made = self._java.gateway.new_array(self._java.jvm.java.lang.String, len(found), 1)
        for number, name in enumerate(found):
            made[number][0] = name
        return made

    def namespaceExists(self, namespace: Any) -> bool:
        parts = list(namespace)
        return not parts or (len(parts) == 1 and parts[0] in self._namespaces())

    def loadNamespaceMetadata(self, namespace: Any) -> Any:
        return self._java.jvm.java.util.HashMap()

    def createNamespace(self, namespace: Any, metadata: Any) -> None:
        raise self._refused("CREATE NAMESPACE", "use connection.create_namespace")

    def alterNamespace(self, namespace: Any, *changes: Any) -> None:
        raise self._refused("ALTER NAMESPACE", "use connection.create_namespace and delete_namespace")

    def dropNamespace(self, namespace: Any, cascade: bool) -> bool:
        raise self._refused("DROP NAMESPACE", "use connection.delete_namespace")

    # -- tables

    def listTables(self, namespace: Any) -> Any:
        wanted = _namespace(list(namespace))
        found = [name for name in self._names() if name[0] == wanted]
        of = self._java.named(_PACKAGE).Identifier.of
        within = self._strings([wanted])
        return self._java.array(f"{_PACKAGE}.Identifier", [of(within, name) for _, name in found])

    def tableExists(self, identifier: Any) -> bool:
        return _parts(identifier) in self._names()

    def loadTable(self, identifier: Any, *more: Any) -> Any:
        """Return the table. Spark passes write privileges, or a version or time, which HBase does not have."""
        if more and isinstance(more[0], str | int):
            raise ConfigError(
                "VERSION AS OF and TIMESTAMP AS OF are not for HBase tables: use hbase.spark.query.timerange.end"
            )
        full = _full_name(*_parts(identifier))
        if full not in self._tables:
            self._tables[full] = self._java.one_proxy(self._load(identifier, full))
        return self._tables[full]

    def invalidateTable(self, identifier: Any) -> None:
        """Forget what was sampled (``REFRESH TABLE``)."""
        self._tables.pop(_full_name(*_parts(identifier)), None)

    def createTable(self, identifier: Any, *arguments: Any) -> Any:
        """Create an HBase table for the columns and options of the statement, or raise ConfigError."""
        columns, partitions, properties = (
            (arguments[0].columns(), arguments[0].partitions(), arguments[0].properties())
            if len(arguments) == 1
            else arguments
        )
        if len(partitions):
            raise ConfigError("PARTITIONED BY is not for HBase tables: give hbase.spark.write.splits or newtable")
        given = _table_options(self._java.strings(properties))
        schema = self._java.schema(self._struct(columns))
        namespace, name = _parts(identifier)
        full = _full_name(namespace, name)
        mapping = _mapping(full, schema, given, self._options.encoder)
        options = Options.parse({**self._given, **given, **mapping})
        catalog = options.catalog()
        if keys.printable(catalog.table) != full:
            raise ConfigError(f"the catalog is of table {keys.printable(catalog.table)}, the statement creates {full}")
        found = schema_of(catalog, options)
        if schema.fields and {each.name: each.dataType for each in schema} != {e.name: e.dataType for e in found}:
            raise ConfigError(
                f"the columns of the statement ({schema.simpleString()}) are not those of the catalog "
                f"({found.simpleString()}): leave out the columns, or make them equal"
            )
        with clients.lease(self._options) as connection:
            families = sorted(catalog.families())
            connection.create_table(catalog.table, {family: {} for family in families}, splits=region_splits(options))
        _log.info("created table %s", full)
        self._mappings[full] = mapping
        return self.loadTable(identifier)

    def alterTable(self, identifier: Any, *changes: Any) -> Any:
        raise self._refused("ALTER TABLE", "HBase has no columns to alter: pass another catalog to use()")

    def dropTable(self, identifier: Any) -> bool:
        raise self._refused("DROP TABLE", "use connection.delete_table, or `metaclient`")

    def renameTable(self, old: Any, new: Any) -> None:
        raise self._refused("ALTER TABLE ... RENAME", "HBase cannot rename a table")

    # -- parts

    def _load(self, identifier: Any, full: str) -> HBaseTable:
        mapping = self._mappings.get(full)
        with clients.lease(self._options) as connection:
            try:
                connection.engine.describe(full.encode())
            except TableNotFound as error:
                raise self._no_such_table(identifier) from error
            if mapping is None:
                sample = sample_table(connection, full)
                _log.warning("%s", sample.text())
                mapping = {"catalog": json.dumps(sample.catalog())}
        namespace, name = _parts(identifier)
        return HBaseTable(self._java, {**self._given, **mapping}, f"{self._name}.{namespace}.{name}")

    def _no_such_table(self, identifier: Any) -> Exception:
        from py4j.protocol import Py4JJavaError

        made = self._java.jvm.org.apache.spark.sql.catalyst.analysis.NoSuchTableException(identifier)
        raised: Exception = Py4JJavaError("no such table", made)
        return raised

    def _refused(self, statement: str, advice: str) -> ConfigError:
        return ConfigError(f"{statement} is not supported in catalog {self._name}: {advice}")

    def _names(self) -> list[tuple[str, str]]:
        with clients.lease(self._options) as connection:
            return sorted(_split_name(keys.printable(table)) for table in connection.tables())

    def _namespaces(self) -> list[str]:
        return sorted({_DEFAULT, *(namespace for namespace, _ in self._names())})

    def _strings(self, texts: list[str]) -> Any:
        return self._java.array("java.lang.String", texts)

    def _struct(self, columns: Any) -> Any:
        """Return the schema of Spark's array of columns; before some version it is a schema already."""
        if hasattr(columns, "__len__"):
            return self._java.named(_PACKAGE).CatalogV2Util.v2ColumnsToStructType(columns)
        return columns


def install(java: SessionJvm, catalog: HBaseCatalog, name: str) -> None:
    """Put the catalog into the session, where Spark looks for catalogs that it has loaded."""
    manager = java.session.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    field.get(manager).put(name, catalog)


def _mapping(table: str, schema: StructType, given: dict[str, str], coder: str) -> dict[str, str]:
    """Return the options that name the table and its columns; ``given`` loses them."""
    fields = {name: field_named(name) for name in given}
    if "catalog_text" in fields.values():
        text = given.pop(next(name for name, field in fields.items() if field == "catalog_text"))
        Catalog.parse(text, default_coder=coder)
        return {"catalog": text}
    if "columns_mapping" in fields.values():
        return {"hbase.table": table, "hbase.columns.mapping": given.pop(_named(fields, "columns_mapping"))}
    return {"hbase.table": table, "hbase.columns.mapping": mapping_of(schema)}


def _named(fields: Mapping[str, str | None], field: str) -> str:
    return next(name for name, found in fields.items() if found == field)


def _table_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of CREATE TABLE: OPTIONS (which Spark passes twice) and TBLPROPERTIES."""
    plain = {name.removeprefix("option."): value for name, value in properties.items()}
    return {name: value for name, value in plain.items() if name.lower() not in _SPARKS}


def _namespace(parts: list[str]) -> str:
    if len(parts) > 1:
        raise ConfigError(f"{'.'.join(parts)}: a namespace of HBase has one part")
    return parts[0] if parts else _DEFAULT


def _parts(identifier: Any) -> tuple[str, str]:
    return _namespace(list(identifier.namespace())), str(identifier.name())


def _split_name(table: str) -> tuple[str, str]:
    namespace, _, name = table.rpartition(":")
    return namespace or _DEFAULT, name


def _full_name(namespace_or_table: str, name: str | None = None) -> str:
    """Return HBase's name of a table, without the namespace ``default``."""
    namespace, plain = _split_name(namespace_or_table) if name is None else (namespace_or_table, name)
    return plain if namespace == _DEFAULT else f"{namespace}:{plain}"
