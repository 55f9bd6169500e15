"""Virtual time for every test, and the worlds of the fake cluster's tests: their fixtures serve here, too."""

from tests.unit.fake_cluster.conftest import make, runtime

__all__ = ["make", "runtime"]
