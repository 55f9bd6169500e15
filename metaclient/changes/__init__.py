"""Changes: every edit of tables of a real HBase, delivered to this process as to a replication peer.

======================  ==========================================================================================
``change``              one atomic change of one row
``decoding``            the cells of log entries, with tags
``repeats``             which entries were committed
``state``               the same over restarts
``window``              the calls of region servers that are held, and their bound
``ledger``              which entries are new, and when a call is answered
``snapshot``            what tables had stored before the subscription
``subscription``        the peer, its permanent nodes, and their administration
``feed``                the life of a worker
``arrow``               changes as record batches
``changes`` ``batches`` the two iterators that users hold
``spool``               calls in files, for consumers that pull and replay, such as Spark
``receiver``            the worker that fills a spool
``pushed_ids``          how far HBase has got with a serial peer
``doctor``              subscriptions that stand still
======================  ==========================================================================================
"""

from metaclient.changes.batches import ChangeBatches
from metaclient.changes.change import Change, ChangeCell, DeadLetter, Tag
from metaclient.changes.changes import Changes
from metaclient.changes.feed import UndecodableCall
from metaclient.changes.opening import open_feed
from metaclient.changes.state import FileState, StateStore
from metaclient.changes.subscription import SubscriptionInfo, Subscriptions

__all__ = [
    "Change",
    "ChangeBatches",
    "ChangeCell",
    "Changes",
    "DeadLetter",
    "FileState",
    "StateStore",
    "SubscriptionInfo",
    "Subscriptions",
    "Tag",
    "UndecodableCall",
    "open_feed",
]
