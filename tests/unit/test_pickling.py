"""Every public exception and value survives pickle and copy: ``multiprocessing.Pool`` hangs on one that does not."""

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

import pytest

import metaclient
import metaclient_fake
import metaclient_native
import metaclient_thrift
import spark_connector.jobs.row_counter
from metaclient import backend, errors, model
from metaclient.errors import Attempt, BatchError, MetaClientError, RegionMoved, RetriesExhausted, Throttled
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, Row, ServerName

#: Imported so that their error classes are known.
PACKAGES = (metaclient, metaclient_fake, metaclient_native, metaclient_thrift, spark_connector.jobs.row_counter)
WAYS: dict[str, Callable[[object], object]] = {
    **{
        f"pickle {protocol}": lambda value, p=protocol: pickle.loads(pickle.dumps(value, p)) for protocol in range(2, 6)
    },
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
SERVER = ServerName("host", 16020, 1)
REGION = RegionInfo(b"t", b"a", b"z", 7)
PLACE = RegionLocation(REGION, SERVER, 3)


def subclasses(kind: type[MetaClientError]) -> Iterator[type[MetaClientError]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def example(kind: type[MetaClientError]) -> MetaClientError:
    """An error of this class with every argument that its constructor takes."""
    known = {
        "may_have_applied": True,
        "attempts": [Attempt(1, 0.5, "CallTimeout: late", "host:16020", 2)],
        "detail": "at java.lang.Thread",
        "server": SERVER,
        "seqnum": 9,
        "wait_s": 1.5,
        "failed": {b"r": errors.CallTimeout("late", may_have_applied=True)},
        "rows": 3,
    }
    takes = inspect.signature(kind.__init__).parameters
    made = kind("what failed", **{name: value for name, value in known.items() if name in takes})
    made.place = PLACE
    return made


def state(error: BaseException) -> dict[str, object]:
    """The attributes of an error, with errors inside of it as their own state: errors do not compare."""
    found: dict[str, object] = {"type": type(error), "args": error.args}
    for name, value in vars(error).items():
        if isinstance(value, dict):
            found[name] = {key: state(one) if isinstance(one, BaseException) else one for key, one in value.items()}
        else:
            found[name] = state(value) if isinstance(value, BaseException) else value
    return found


ALL = {MetaClientError, *subclasses(MetaClientError)}
ERRORS = sorted(
    (kind for kind in ALL if not kind.__name__.startswith("_")), key=lambda kind: (kind.__module__, kind.__name__)
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_error_keeps_all_of_its_attributes(kind: type[MetaClientError], way: str) -> None:
    error = example(kind)
    again = WAYS[way](error)
    assert isinstance(again, MetaClientError)
    assert state(again) == state(error)
    assert "what failed" in str(again)
    assert again.disposition is error.disposition


def test_errors_of_all_packages_are_looked_at() -> None:
    assert {BatchError, RegionMoved, Throttled, RetriesExhausted} <= set(ERRORS)
    assert {kind.__module__.partition(".")[0] for kind in ERRORS} >= {"metaclient", "spark_connector"}


FAIL_IN_A_BATCH = """(_ for _ in ()).throw(
    __import__('metaclient').BatchError('1 row failed', failed={b'r': __import__('metaclient').NoSuchFamily('no cf')})
)"""


def test_batch_error_of_a_worker_process_does_not_hang_its_pool() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(BatchError) as caught:
        pool.apply_async(eval, (f"next({FAIL_IN_A_BATCH})",)).get(timeout=120)
    assert str(caught.value.failed[b"r"]) == "no cf"


# -- values ----------------------------------------------------------------------------------------------------------


def values() -> dict[str, object]:
    """One example of every public value class of the model and of the SPI, built from its own field types."""
    cell = model.Cell(b"cf", b"q", 5, b"v")
    row = Row({b"cf:q": b"v"})
    row.stale, row.replica_id, row.server = True, 2, SERVER
    made: list[object] = [
        cell,
        SERVER,
        REGION,
        PLACE,
        RegionLocations(REGION, (PLACE, None, PLACE)),
        model.MetaReplica(1, SERVER),
        model.Result(b"r", (cell,)),
        row,
        model.Get(b"r", columns=((b"cf", b"q"),)),
        model.Scan(b"a", b"z"),
        model.Put(b"r", (cell,)),
        model.Delete(b"r"),
        model.FamilyDescriptor(b"cf"),
        model.TableDescriptor(b"t", (model.FamilyDescriptor(b"cf"),)),
        backend.Capabilities(),
        Attempt(1, 0.1, "x"),
        *model.Consistency,
        *model.Durability,
        *model.CompareOp,
        *model.TableState,
        *errors.Disposition,
    ]
    return {f"{type(one).__name__}-{number}": one for number, one in enumerate(made)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", values())
def test_value_is_equal_after_the_way(name: str, way: str) -> None:
    value = values()[name]
    again = WAYS[way](value)
    assert type(again) is type(value)
    assert again == value
    if is_dataclass(value) and not isinstance(value, type):
        assert all(getattr(again, field.name) == getattr(value, field.name) for field in fields(value))
    if isinstance(value, Row):
        assert isinstance(again, Row)
        assert (again.stale, again.replica_id, again.server) == (True, 2, SERVER)
