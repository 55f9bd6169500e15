"""The JVM of a classic Spark session: objects of Python that implement Spark's Java interfaces.

py4j makes a Java proxy of a Python object whose class has an inner class ``Java`` with the names of interfaces. Spark's
driver calls the proxy, and the call runs in the driver's Python. :class:`JavaProxy` adds the parts that py4j lacks:

1. Default methods of Java interfaces: a method that the Python class does not have is Java's default method.
2. Errors: a ``MetaClientError`` becomes a Java exception with its message, so that Spark raises it without the stack of
   the proxy.
3. ``equals``, ``hashCode`` and ``toString``, which Spark calls when it compares plans.

A callback runs in the Java thread that called it (PySpark's pinned threads, the default). :func:`has_callbacks` is
False for sessions where that is not so.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from metaclient.errors import MetaClientError
from spark_connector.settings.session import has_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["JavaProxy", "SessionJvm", "has_callbacks", "spark_version"]

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def has_callbacks(spark: SparkSession) -> bool:
    """Return True if Java can call Python objects of this session, each in the thread of its caller."""
    if not has_jvm(spark):
        return False
    from py4j.clientserver import ClientServer

    return isinstance(spark.sparkContext._gateway, ClientServer)


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """Return major and minor version of the running Spark."""
    major, minor, *_ = str(spark.version).split(".")
    return int(major), int(minor)


class SessionJvm:
    """The JVM of one session, and conversions between its objects and Python's."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        self.spark = spark
        gateway: Any = spark.sparkContext._gateway
        self.gateway = gateway
        self.jvm: Any = spark._jvm
        self.session: Any = spark._jsparkSession
        start: Any = ensure_callback_server_started
        start(gateway)
        # Without it py4j replaces a Java exception of a callback by the text of Python's traceback.
        gateway.python_parameters.propagate_java_exceptions = True

    def named(self, name: str) -> Any:
        """Return the Java class or package of a full name."""
        return functools.reduce(getattr, name.split("."), self.jvm)

    def array(self, class_name: str, items: Iterable[Any]) -> Any:
        """Return a Java array of exactly this class, which py4j's proxies insist on."""
        given = list(items)
        made = self.gateway.new_array(self.named(class_name), len(given))
        for number, item in enumerate(given):
            made[number] = item
        return made

    def struct(self, schema: StructType) -> Any:
        """Return a schema as Spark's Java object."""
        return self.jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())

    def schema(self, struct: Any) -> StructType:
        """Return the schema of Spark's Java object."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(struct.json()))

    def strings(self, options: Any) -> dict[str, str]:
        """Return a ``java.util.Map`` of strings."""
        return {str(each.getKey()): str(each.getValue()) for each in options.entrySet()}

    def options(self, given: dict[str, str]) -> Any:
        """Return options as Spark's ``CaseInsensitiveStringMap``."""
        made = self.jvm.java.util.HashMap()
        for name, value in given.items():
            made.put(name, value)
        return self.jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(made)

    def loaded(self, class_name: str) -> Any:
        """Return the ``java.lang.Class`` of a name."""
        return self.jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(class_name)

    def nothing(self) -> Any:
        """Return Scala's ``None``."""
        return self.jvm.scala.Option.apply(None)

    def one_proxy(self, proxy: JavaProxy) -> Any:
        """Return a reference to one Java proxy of the object: py4j makes another proxy each time that it is passed."""
        holder = self.jvm.java.util.ArrayList()
        holder.add(proxy)
        return holder.get(0)

    def thread_id(self) -> int:
        """Return the id of the Java thread that called this Python thread back."""
        return int(self.jvm.java.lang.Thread.currentThread().getId())

    def error(self, error: MetaClientError) -> Exception:
        """Return an exception that py4j throws in Java with this error's message."""
        from py4j.protocol import Py4JJavaError

        text = f"{type(error).__name__}: {error}"
        made: Exception = Py4JJavaError(text, self.jvm.java.lang.IllegalArgumentException(text))
        return made

    def default_method(self, interfaces: Iterable[str], name: str, proxy: JavaProxy, arguments: tuple[Any, ...]) -> Any:
        """Call the default method of a Java interface; raise AttributeError if the interfaces have none."""
        for interface in interfaces:
            for method in self.loaded(interface).getMethods():
                if method.getName() == name and method.isDefault() and method.getParameterCount() == len(arguments):
                    given = self.array("java.lang.Object", arguments)
                    return self.jvm.java.lang.reflect.InvocationHandler.invokeDefault(proxy, method, given)
        raise AttributeError(f"{type(proxy).__name__} has no method {name} of {', '.join(interfaces)}")


class JavaProxy:
    """A Python object that Spark's driver uses through Java interfaces, which the inner class ``Java`` names."""

    class Java:
        implements: tuple[str, ...] = ()

    def __init__(self, java: SessionJvm) -> None:
        self._java = java
        self._number = next(_numbers)

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if callable(method) and not name.startswith("_") and name != "Java":
                setattr(cls, name, _translated(method))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return Java's default method of this name; py4j looks up a method by its name only."""
        if name.startswith("_"):
            raise AttributeError(name)
        interfaces = type(self).Java.implements
        return lambda *arguments: self._java.default_method(interfaces, name, self, arguments)

    def equals(self, other: Any) -> bool:
        """Return True if the other Java object is a proxy of this object; no two objects have the same number."""
        if other is None:
            return False
        return bool(other.hashCode() == self._number and other.toString() == self.toString())

    def hashCode(self) -> int:
        return self._number

    def toString(self) -> str:
        return type(self).__name__


def _translated(method: _Method) -> _Method:
    """Return the method with errors of the client as Java exceptions."""

    @functools.wraps(method)
    def call(self: JavaProxy, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except MetaClientError as error:
            _log.debug("a call of Spark failed", exc_info=True)
            raise self._java.error(error) from error

    return call  # type: ignore[return-value]  # the same signature
