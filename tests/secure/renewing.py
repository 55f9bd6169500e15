"""A program whose Kerberos tickets live for 20 s: it loses all connections again and again, and goes on by itself.

Arguments: folder of the client's configuration, principal, keytab, seconds. It prints the number of answered calls.
"""

from __future__ import annotations

import sys

import metaclient
from metaclient.runtime import ThreadRuntime

PAUSE_S = 1.0


def main(config: str, principal: str, keytab: str, seconds: str) -> int:
    answered = 0
    with (
        ThreadRuntime() as runtime,
        metaclient.connect(config=config, principal=principal, keytab=keytab, open_timeout_s=60) as connection,
    ):
        end = runtime.now() + float(seconds)
        while runtime.now() < end:
            for one in list(connection._backend._connections._open.values()):  # type: ignore[attr-defined]
                one.close()
            assert connection.whoami() == ("alice", "KERBEROS")
            answered += 1
            runtime.sleep(PAUSE_S)
    print(answered)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
