"""The contract of backends: a pytest class that the author of a backend subclasses.

    from metaclient.testing import BackendContract

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend_connection(self):
            with metaclient.connect("mine://host") as connection:
                yield connection

All ``test_...`` methods are inherited. How the tests work:

1. They use the public client only, so a backend is tested by what its users see.
2. Each test creates its own tables, with names that no other test or run has, and deletes them. The cluster may be a
   real one with other tables.
3. Writes whose order matters have explicit timestamps. Where the server's clock matters, the test writes until the
   server's time has advanced. No test sleeps or reads a clock of this process.
4. A test of an operation that the backend does not support (``Capabilities``) is skipped with that reason, or expects
   ``Unsupported``.

Hooks, all optional: :meth:`BackendContract.disturb` flushes, moves or splits a table between two steps of a test, and
must not change the result of any read; :meth:`BackendContract.replicate` waits until secondaries have caught up; the
fixture ``table_connection`` is another connection to the same cluster, for a backend that cannot create tables of
several regions.

Behaviour of HBase that looks like a bug and is required (each has a test): a delete hides puts of its own timestamp,
also later ones; an empty value counts as absent for a check; the empty qualifier is a column; an increment is written
at least a millisecond after the value that it replaces.
"""

from metaclient.testing.contract.arrow_columns import ArrowColumns
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
from metaclient.testing.contract.schemas import Schemas
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
    ArrowColumns,
    Tables,
    Schemas,
    Regions,
    Replicas,
):
    """All tests that a backend must pass; the package's docstring explains how to use it."""
