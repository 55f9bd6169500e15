"""Fetches HBase's jars with Maven, once per version, into a cache folder outside of the project.

Maven reads the user's own settings (mirrors, proxies); no registry is named here. A set of jars is downloaded into a
separate folder and moved into place when complete, so that an interrupted download is never used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from metaclient.errors import ConfigError, MetaClientError
from metaclient_local_hbase.tools import cache_folder, check_tools

__all__ = ["COMPRESSION_JARS", "GATEWAY_VERSION", "KDC_JARS", "VERSIONS", "class_path", "jar_folder"]

#: The only release whose packages have both the servers and the Thrift gateways; its gateways work with servers of 3.0.
GATEWAY_VERSION = "2.6.1"
#: Version -> Maven artifacts of org.apache.hbase.
VERSIONS: dict[str, tuple[str, ...]] = {
    "2.6.1": ("hbase-server", "hbase-thrift"),
    "3.0.0-alpha-4": ("hbase-server",),
}
#: Apache Kerby, a Kerberos server in Java, for secure clusters; its jars are fetched like those of a version.
KDC_JARS = "kerby-2.1.0"
#: HBase's module of codecs in plain Java; HBase itself has no codec for SNAPPY, LZ4 and ZSTD without native libraries.
COMPRESSION_JARS = f"compression-{GATEWAY_VERSION}"
#: Name of a set of jars -> (group, artifact, version) of each Maven artifact.
_SETS: dict[str, tuple[tuple[str, str, str], ...]] = {
    **{
        version: tuple(("org.apache.hbase", artifact, version) for artifact in artifacts)
        for version, artifacts in VERSIONS.items()
    },
    COMPRESSION_JARS: (("org.apache.hbase", "hbase-compression-aircompressor", GATEWAY_VERSION),),
    KDC_JARS: (("org.apache.kerby", "kerb-simplekdc", "2.1.0"), ("org.slf4j", "slf4j-nop", "1.7.36")),
}
#: Attempts of a fetch (``-U``: without it, Maven remembers a failure for a day).
FETCHES_MAX = 3
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: A dependency of Hadoop 2 with which every server ends with NoSuchMethodError: ServletContext.createFilter.
UNWANTED = "servlet-api-2.5.jar"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>metaclient</groupId>
  <artifactId>local-hbase</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>"""


def jar_folder(version: str, show: Callable[[str], None] = lambda text: None) -> Path:
    """Return the folder with all jars of a version; fetch them if they are missing (about a minute, once)."""
    if version not in _SETS:
        raise ConfigError(f"there are no packages for HBase {version!r}; known are {', '.join(VERSIONS)}")
    folder = cache_folder() / "jars" / version
    if not folder.is_dir():
        check_tools()
        what = f"HBase {version}" if version in VERSIONS else version
        show(f"fetching the jars of {what} with Maven (about a minute, once)")
        _fetch(version, folder)
    return folder


def _fetch(version: str, folder: Path) -> None:
    making = folder.with_name(f"{version}.making-{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        (making / "pom.xml").write_text(pom(version), encoding="utf-8")
        _maven(making, version)
        (making / "lib" / UNWANTED).unlink(missing_ok=True)
        try:
            (making / "lib").rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has installed the same jars meanwhile
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def pom(version: str) -> str:
    """Return the Maven project whose dependencies are the jars of a version."""
    made = [_DEPENDENCY.format(group=group, artifact=name, version=number) for group, name, number in _SETS[version]]
    return _POM.format(dependencies="\n".join(made))


def _maven(folder: Path, version: str) -> None:
    """Run Maven, with retries after failures of the repository; finished downloads stay in Maven's own cache."""
    command = ["mvn", "-B", "-q", "-U", PLUGIN, "-DincludeScope=runtime", "-DoutputDirectory=lib"]
    said: list[str] = []
    for _ in range(FETCHES_MAX):
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if ran.returncode == 0:
            return
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    first = next((line for line in said if "ERROR" in line), "it said nothing")
    raise MetaClientError(
        f"Maven could not fetch {version}, {FETCHES_MAX} times: {first.strip()} "
        "(run mvn with the same settings to see more)",
        detail="\n".join(said),
    )


def class_path(version: str) -> str:
    """Return all jars of a version for ``java -cp``; they must have been fetched."""
    return str(cache_folder() / "jars" / version / "*")
