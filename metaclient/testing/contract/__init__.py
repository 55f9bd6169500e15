"""Decides what any backend must do: a pytest class that the author of a backend subclasses.

    from metaclient.testing import BackendContract

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend_connection(self):
            with metaclient.connect("mine://host") as connection:
                yield connection

That is all; every ``test_...`` method is inherited. What the tests rely on:

1. Everything goes through the public client, so that a backend is judged by what its users see.
2. Each test makes tables of its own, under names that no other test or run has, and deletes them: the cluster may be
   shared, real, and already full of tables.
3. Writes that must be told apart have timestamps of their own; where the server's clock matters, it is asked until it
   has moved on. Nothing sleeps, and no clock of this process is read.
4. What a backend says that it cannot do (``Capabilities``) is skipped with that reason, or must raise ``Unsupported``.

Hooks, all optional: :meth:`BackendContract.disturb` flushes, moves or splits a table between two steps of a test, and
must not change what a reader sees; :meth:`BackendContract.replicate` waits until secondaries have caught up;
the fixture ``table_connection`` is another way to the same cluster, for a backend that cannot make tables of several
regions itself.

Facts of HBase that look like bugs and are kept (each has its test): a delete hides puts of its own timestamp, also
later ones; an empty value counts as absent for a check; the empty qualifier is a column; an increment is written at
least a millisecond after the value that it replaces.
"""

from metaclient.testing.contract.atomic_rows import AtomicRows
from metaclient.testing.contract.batches import Batches
from metaclient.testing.contract.cells import Cells
from metaclient.testing.contract.checks import Checks
from metaclient.testing.contract.counters import Counters
from metaclient.testing.contract.deletes import Deletes
from metaclient.testing.contract.filters import Filters
from metaclient.testing.contract.regions import Regions
from metaclient.testing.contract.replicas import Replicas
from metaclient.testing.contract.rows import Rows
from metaclient.testing.contract.scans import Scans
from metaclient.testing.contract.suite import FAMILIES, LETTER_SPLITS, LETTERS, TableMaker, fill
from metaclient.testing.contract.tables import Tables
from metaclient.testing.contract.versions import Versions

__all__ = ["FAMILIES", "LETTERS", "LETTER_SPLITS", "BackendContract", "TableMaker", "fill"]


class BackendContract(
    Cells,
    Versions,
    Rows,
    Deletes,
    Batches,
    Counters,
    Checks,
    AtomicRows,
    Scans,
    Filters,
    Tables,
    Regions,
    Replicas,
):
    """Everything that a backend must do; see the module's docstring for how to use it."""
