"""What an error of a server says about a write: refused at the door, or perhaps applied."""

from __future__ import annotations

import pytest

from metaclient.errors import NotServingRegion, ServerNotRunning, ServerStopped
from metaclient_native.errors import translate_exception

HBASE = "org.apache.hadoop.hbase."
STOPPED, ABORTED = (
    HBASE + "regionserver.RegionServerStoppedException",
    HBASE + "regionserver.RegionServerAbortedException",
)
EARLY = HBASE + "ipc.ServerNotRunningYetException"


@pytest.mark.parametrize(
    ("java_class", "text", "kind", "may_have_applied"),
    [
        (STOPPED, "Server localhost,25117,1794847829941 stopping", ServerStopped, False),
        (ABORTED, "Server localhost,25117,1794847829941 aborting", ServerStopped, False),
        (EARLY, "Server localhost,25117,1794847829941 is not running yet", ServerNotRunning, False),
        (STOPPED, "the log is closed", ServerStopped, True),
        (EARLY, "", ServerNotRunning, True),
        (HBASE + "NotServingRegionException", "t,,1 is not online", NotServingRegion, False),
    ],
)
def test_write_that_was_refused_at_the_door_was_not_applied(
    java_class: str, text: str, kind: type[Exception], may_have_applied: bool
) -> None:
    answer = {"exception_class_name": java_class, "stack_trace": f"{java_class}: {text}\n\tat a.B.c(B.java:1)"}
    error = translate_exception(answer, "Mutate", is_write=True)
    assert type(error) is kind
    assert error.may_have_applied is may_have_applied
    assert not translate_exception(answer, "Get", is_write=False).may_have_applied
